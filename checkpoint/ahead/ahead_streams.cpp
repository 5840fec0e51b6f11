#include "checkpoint/ahead/ahead_streams.h"

#include "engine/base/no_destructor.h"
#include "engine/base/stream_mark.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace overdrive::checkpoint {

namespace {

// Memory freed on one stream is not used on another, so each of them costs memory.
constexpr size_t kMostStreams = 4;

}  // namespace

c10::Stream next_ahead_stream(c10::Device device, size_t count) {
  static base::NoDestructor<std::array<base::SideStreams, kMostStreams>> streams;
  static std::atomic<size_t> turn{0};
  const size_t index = turn.fetch_add(1, std::memory_order_relaxed) % std::min(count, kMostStreams);
  return (*streams)[index].of(device);
}

}  // namespace overdrive::checkpoint
