// LibTorch's graph task of the calling thread. Any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/ThreadLocalState.h>

namespace overdrive::engine::host {

// The graph task that is current on this thread, or null outside a backward.
base::GraphTask* current_graph_task();

// Before 2.13 the host turns named tensors off around each node's apply(), a frame's too; hooks run with what
// the caller had, and the nodes in a frame turn names off for themselves. Made by the thread that enters a
// frame, beforehand; in the frame's apply(), state() gives hooks their state back for the scope of what it
// returns.
#ifdef OVERDRIVE_SHARED_NODES
class NamesOfHooks {
 public:
  at::ThreadLocalStateGuard state() const {
    at::NamesMode::set_enabled(on_);  // no part of the state, as the key is
    return at::ThreadLocalStateGuard(current_graph_task()->thread_locals_);
  }

 private:
  bool on_ = at::NamesMode::is_enabled();
};
#else
struct NamesOfHooks {
  struct State {};
  State state() const { return {}; }
};
#endif

}  // namespace overdrive::engine::host
