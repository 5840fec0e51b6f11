// The streams on which a device runs regions again ahead. Each region's gradient is made on the stream of its
// recomputation, so regions that follow each other have different ones: the next recomputation then overlaps
// the gradient under way. Any thread; knows no vendor.
#pragma once

#include <c10/core/Stream.h>

#include <cstddef>

namespace overdrive::checkpoint {

// The next of `count` streams of the device, in turn. Of so many regions in a row no two share one.
c10::Stream next_ahead_stream(c10::Device device, size_t count);

}  // namespace overdrive::checkpoint
