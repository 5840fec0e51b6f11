// The part of a run that a backward nested in it reads: depth, task, current node. Lies on the stack of a
// thread that takes part in the run, and is used by that thread alone.
#pragma once

#include "engine/run/thread_context.h"

#include <cstdint>

namespace overdrive::engine {

class ThreadState;

struct ActiveRun {
  // Becomes the innermost of the thread, for as long as it lives.
  ActiveRun(ThreadContext& of, base::GraphTask* of_task, const ThreadState& of_state)
      : context(of),
        outer(of.innermost),
        depth(outer == nullptr ? 0 : outer->depth + 1),
        task(of_task),
        state(of_state) {
    context.innermost = this;
  }
  // With the last go the places that failed runs have left in the heap.
  ~ActiveRun() {
    ActiveRun** place = &context.innermost;
    while (*place != this) place = &(*place)->outer;  // not the innermost where the program switches fibers
    *place = outer;
    if (context.innermost == nullptr) context.heap.clear();
  }
  ActiveRun(const ActiveRun&) = delete;
  ActiveRun& operator=(const ActiveRun&) = delete;

  ThreadContext& context;
  ActiveRun* outer;
  int32_t depth;                  // how many backwards this one is nested in
  base::GraphTask* const task;    // the host's, when the run is inside a frame
  const ThreadState& state;       // of this thread
  base::Node* node = nullptr;     // the one that runs now on this thread, or ran last
  bool is_multithreaded = false;  // other threads take part
};

// The node whose function or hooks run now on the calling thread, on our engine or on the host's. Null outside
// of backwards. Inside a run that has no host frame the node may be that of a backward around it. The node
// lives until it returns. For hooks that fetch a tensor for the node.
inline base::Node* node_under_way() {
  // A node of the host's that is no frame of ours runs further inside than any run of ours.
  const base::NodePtr current = torch::autograd::get_current_node();
  if (current && !HostFrame::is_frame(*current)) return current.get();
  const ActiveRun* run = thread_context().innermost;
  return run != nullptr ? run->node : nullptr;
}

}  // namespace overdrive::engine
