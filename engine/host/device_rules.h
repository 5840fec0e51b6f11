// LibTorch's rules for devices and streams, as its engine applies them. No state; any thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine::host {

// True when some device of this process has queues of its own (all but CPU, meta and lazy).
bool has_device_with_queue();
// True when nodes on this type of device run on the calling thread in stock, too.
bool runs_on_caller(c10::DeviceType type);

// Whether the caller's stream may wait for a leaf's stream. Since 2.15 the host refuses the wait when exactly
// one of the two records a graph, because the wait would spoil the graph. The refusal is an error, or a warning
// where the program asked for one.
bool may_wait_for_leaf(const c10::Stream& caller, const c10::Stream& leaf);

}  // namespace overdrive::engine::host
