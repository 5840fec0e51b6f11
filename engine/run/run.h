// The state of one backward on the thread that made it: gradient slots, ready nodes, captures. The code around
// a run (backward.*) enters the host frame.
//
// Note [Lifetime]: a plan holds raw pointers. Stock frees a node whose last owner goes away during the run as
// soon as the node has run and its parents are gone, and so does a run. A node that has not run is kept alive
// by the edges of a parent that has not run. A ready node is kept alive by ReadyTask::keep until its outputs
// are distributed. Nothing else keeps a node alive.
#pragma once

#include "engine/node/step.h"
#include "engine/run/thread_run_state.h"

#include <cstdint>

namespace overdrive::engine {

class Run : public AnyRun {
 public:
  // Everything here is called by backward.cpp, on the thread that called the backward, without a lock. Hooks
  // and nodes run inside, and may begin a backward of their own, whose Run then lies above this one on the
  // stack.
  Run(ThreadContext& context, RunMemory& memory, ThreadState& state, const RunOptions& options);
  // Gives up the rest after an error: gradients and ready nodes.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Runs the whole plan, beginning at `root` with the gradients of `root_edges` (or, for a group,
  // with those that the root itself holds). The reference is given up when the root has run. Throws
  // every error of a node or hook.
  void run(base::NodePtr root, const base::edge_list& root_edges, const base::variable_list& gradients);

  // After run().
  base::variable_list take_captured() { return std::move(captured_); }

 private:
  // Of run(): takes the best task from the thread's heap until none of ours is left.
  void run_ready();
  // Of run_ready(): a hook has switched user-space stacks, and another run's task lies on the heap.
  [[noreturn, gnu::noinline]] void refuse_fiber(ReadyTask task);
  // Runs one node, inside of ThreadRunState::run().
  void evaluate(uint32_t index);
  // Before a native node that comes after foreign code: whether it may still run so.
  void ask_again(const PlannedNode& planned);
  // Of run_node(), once for each gradient: adds it to those of `target`.
  void arrive(uint32_t target, const base::Edge& edge, at::Tensor&& gradient);
  // Of arrive().
  bool sums_below_autograd() const;
  // The node has all its gradients.
  void make_ready(uint32_t index, base::NodePtr node);

  ThreadContext& context_;
  RunMemory& memory_;
  const RunOptions options_;
  base::variable_list captured_;
  NodeStep step_;  // the refusal changes when foreign code has run
  ThreadRunState run_state_;
  bool foreign_ran_ = false;  // since the refusal was asked for
  uint32_t ready_ = 0;        // tasks of ours in the heap
  uint32_t incomplete_ = 0;   // nodes that some but not all gradients have reached
};

}  // namespace overdrive::engine
