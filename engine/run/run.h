// One backward, being run: gradients on their way, what is ready, what was captured. Serial, on
// the thread that made it. Does not know whether a host frame is around it (backward.* does), nor
// who forwards what.
//
// Note [Lifetime]: a plan holds raw pointers. Stock frees a node whose last owner goes away
// during the run as soon as its parents are gone and it has run, and so do we: a node that has not
// run is kept alive by the edges of a parent that has not run, and from the moment it is ready
// until its outputs are distributed by ReadyTask::keep; by nothing else.
#pragma once

#include "engine/host/thread_state.h"
#include "engine/node/node_call.h"
#include "engine/run/active_run.h"
#include "engine/run/run_memory.h"
#include "engine/run/run_observer.h"
#include "engine/run/thread_context.h"

#include <cstdint>

namespace overdrive::engine {

struct RunOptions {
  bool keep_graph = false;
  bool user_code = false;                  // nodes or hooks from outside LibTorch may run
  base::Engine* previous = nullptr;        // whose thread_on_exception() hears of errors
  base::GraphTask* task = nullptr;         // the host's, when the run is inside a frame
  host::NodeBits* current_node = nullptr;  // where get_current_node() looks, or null
  bool graph_views = false;                // keep the task's dependencies_ up to date
  RunObserver* observer = nullptr;         // hears of every node, or null
  RunOwn run_own = nullptr;                // runs nodes in the place of their apply(), or null: nothing may
};

// What a pruned call does with a node before, or instead of, running it: `inputs` are what has come for it,
// `captured` what the call returns. False: instead.
bool visit_pruned(const Plan& plan, uint32_t index, base::variable_list& inputs, base::variable_list& captured);

class Run {
 public:
  Run(ThreadContext& context, RunMemory& memory, ThreadState& state, const RunOptions& options);
  // Gives up what is left: after an error, gradients and ready nodes.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Runs the whole plan, beginning at `root` with the gradients of `root_edges` (or, for a group,
  // with those that the root itself holds). The reference is given up when the root has run. Throws
  // what a node or hook throws.
  void run(base::NodePtr root, const base::edge_list& root_edges, const base::variable_list& gradients);

  base::variable_list take_captured() { return std::move(captured_); }

 private:
  void run_ready();
  void step(ReadyTask& task);
  void run_and_report(const ReadyTask& task, PlannedNode& planned);
  void evaluate(uint32_t index, PlannedNode& planned);
  void report(const base::NodePtr& node);
  void take_inputs(uint32_t index);
  void distribute(uint32_t index, base::variable_list& outputs);
  uint32_t target_of(uint32_t index, size_t edge_index, const base::Edge& edge) const;
  void arrive(uint32_t target, const base::Edge& edge, at::Tensor&& gradient);
  void make_ready(uint32_t index, base::NodePtr node);
  void show_node(base::Node& node) {
    if (options_.current_node != nullptr) *options_.current_node = host::bits_of(node);
  }
  void show_outer_node() {
    if (options_.current_node != nullptr) *options_.current_node = outer_node_;
  }
  void restore_state();

  ThreadContext& context_;
  RunMemory& memory_;
  ThreadState& state_;
  const RunOptions options_;
  ActiveRun active_;
  const host::NodeBits outer_node_;  // what get_current_node() is between our nodes
  base::variable_list captured_;
  uint32_t ready_ = 0;       // tasks of ours in the heap
  uint32_t incomplete_ = 0;  // nodes that some but not all gradients have reached
  uint64_t nodes_run_ = 0;
};

}  // namespace overdrive::engine
