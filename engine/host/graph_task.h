// LibTorch's graph task of the calling thread, and parts of one for runs that have none. Any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <vector>

namespace overdrive::engine::host {

// The graph task that is current on this thread, or null outside a backward.
inline base::GraphTask* current_graph_task() {
  // The one exported accessor that returns an address inside the task.
  const auto* member = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (member == nullptr) return nullptr;
  auto* address = reinterpret_cast<char*>(const_cast<std::unordered_set<base::Node*>*>(member));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  return reinterpret_cast<base::GraphTask*>(address - offsetof(base::GraphTask, nodes_in_graph_));
#pragma GCC diagnostic pop
}

// Before 2.13 the host turns named tensors off around each node's apply(), and so around a frame's. Hooks must
// run in the caller's state; nodes in a frame turn names off themselves. The thread that enters a frame makes
// this object before. Inside the frame, state() restores the caller's state for the scope of its result.
#ifdef OVERDRIVE_SHARED_NODES
class NamesOfHooks {
 public:
  at::ThreadLocalStateGuard state() const {
    at::NamesMode::set_enabled(on_);  // the state has the key, and not this switch
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

// Keeps the warnings of a run and gives them to the caller's handler at the end, as a graph task of the host
// does. For runs without a graph task of their own.
class WarningCollector final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { warnings_.push_back(warning); }

  // Gives each warning once to the current handler.
  void replay() {
    std::vector<c10::Warning> warnings;
    warnings.swap(warnings_);
    for (const c10::Warning& warning : warnings) c10::warn(warning);
  }

 private:
  std::vector<c10::Warning> warnings_;
};

}  // namespace overdrive::engine::host
