// The state of one backward on the thread that made it: gradient slots, ready nodes, captures. The code around
// a run (backward.*) enters the host frame.
//
// Note [Lifetime]: a plan holds raw pointers. Stock frees a node whose last owner goes away during the run as
// soon as the node has run and its parents are gone, and so does a run. A node that has not run is kept alive
// by the edges of a parent that has not run. A ready node is kept alive by ReadyTask::keep until its outputs
// are distributed. Nothing else keeps a node alive.
#pragma once

#include "engine/node/step.h"
#include "engine/run/seat.h"

#include <cstdint>

namespace overdrive::engine {

class Run : public AnyRun {
 public:
  Run(ThreadContext& context, RunMemory& memory, ThreadState& state, const RunOptions& options);
  // Gives up the rest after an error: gradients and ready nodes.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Runs the whole plan, beginning at `root` with the gradients of `root_edges` (or, for a group,
  // with those that the root itself holds). The reference is given up when the root has run. Throws
  // every error of a node or hook.
  void run(base::NodePtr root, const base::edge_list& root_edges, const base::variable_list& gradients);

  base::variable_list take_captured() { return std::move(captured_); }

 private:
  void run_ready();
  [[noreturn, gnu::noinline]] void refuse_fiber(ReadyTask task);
  void evaluate(uint32_t index);
  void arrive(uint32_t target, const base::Edge& edge, at::Tensor&& gradient);
  void make_ready(uint32_t index, base::NodePtr node);

  ThreadContext& context_;
  RunMemory& memory_;
  const RunOptions options_;
  base::variable_list captured_;
  NodeStep step_;  // the refusal changes when foreign code has run
  Seat seat_;
  uint32_t ready_ = 0;       // tasks of ours in the heap
  uint32_t incomplete_ = 0;  // nodes that some but not all gradients have reached
};

}  // namespace overdrive::engine
