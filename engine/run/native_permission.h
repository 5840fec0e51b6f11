// Whether nodes may run in the place of their apply() in the modes of this thread. Asked at the beginning of a
// run, and again before a native node that follows code from outside LibTorch. No state; leaves to the caller
// what the call itself asks for (create_graph, inputs, devices).
#pragma once

#include "engine/node/node_call.h"

namespace overdrive::engine {

// Whether a dispatch key is included on top of the usual ones. It sends every operator, also those of
// LibTorch's own nodes, to a kernel that may be the program's: it may ask for the task or the node.
bool a_mode_is_on();

// The first thing that could notice how the arithmetic is done, or kNone. `has_callbacks`: at::hasCallbacks(),
// which takes a lock, and which a caller may know.
NativeRefusal refusal_of_thread(bool has_callbacks);

}  // namespace overdrive::engine
