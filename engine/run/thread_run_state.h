// The run state of a thread: the node that runs on it now, and the repair of everything that a node leaves
// behind. Used by that thread alone; a worker's lies on its stack, the caller's in the run.
#pragma once

#include "engine/base/counters.h"
#include "engine/base/no_destructor.h"
#include "engine/host/current_node.h"
#include "engine/host/host_frame.h"
#include "engine/host/thread_state.h"
#include "engine/node/step.h"
#include "engine/run/active_run.h"

namespace overdrive::engine {

// The node that an error came out of, in the backward that begins at `roots`.
struct FailedNode {
  base::Node& node;
  uint32_t index;  // in the plan
  const Plan& plan;
  const base::edge_list& roots;
};
// Adds to the error. Filled by a higher folder.
using ErrorDescriber = void (*)(const FailedNode& failed, std::exception& error) noexcept;

struct RunOptions {
  bool keep_graph = false;
  bool user_code = false;                  // nodes or hooks from outside LibTorch may run
  base::Engine* previous = nullptr;        // its thread_on_exception() hears of errors
  base::GraphTask* task = nullptr;         // the host's, when the run is inside a frame
  host::NodeBits* current_node = nullptr;  // the calling thread's place for get_current_node(), or null
  bool task_tables = false;                // the task's dependencies_ are kept up to date
  RunWatch* observer = nullptr;            // its may_go_on() is called before every node; or null
  RunNative run_native = nullptr;          // runs nodes in the place of their apply(), or null
  NativeRefusal native_refusal = NativeRefusal::kNone;  // why none may run so in this run
  const RunWatches* watches = nullptr;                  // hear of every node, or null
  ErrorDescriber describe_error = nullptr;
  const Plan* plan = nullptr;              // of the run
  const base::edge_list* roots = nullptr;  // the same
};

// The part of the options that the run of a node needs.
inline NodeStep step_of(Plan& plan, base::variable_list& captured, const RunOptions& options) {
  return {.plan = plan,
          .captured = captured,
          .call = {.keep_graph = options.keep_graph,
                   .views_are_seen = plan.num_captured() != 0,
                   .user_code = options.user_code,
                   .refusal = options.native_refusal,
                   .run_native = options.run_native},
          .watches = options.watches};
}

class ThreadRunState {
 public:
  // `current_node` is the place of this thread, or null. `of_node` is empty between nodes.
  ThreadRunState(ThreadContext& context, ThreadState& state, const RunOptions& options,
                 host::NodeBits* current_node, GradientLists& of_node)
      : active(context, options.task, state),
        lists(of_node),
        state_(state),
        options_(options),
        current_node_(current_node),
        between_nodes_(current_node == nullptr ? host::NodeBits() : *current_node) {}
  ~ThreadRunState() { count(base::counts::nodes, static_cast<int64_t>(nodes_run_)); }
  ThreadRunState(const ThreadRunState&) = delete;
  ThreadRunState& operator=(const ThreadRunState&) = delete;

  // Runs `evaluate`, which runs the node of `task`, with everything around it that stock has: the profiler's
  // event, the current node, the report of an error to the engine before us, thread-locals as they were.
  template <typename Evaluate>
  void run(const ReadyTask& task, Evaluate&& evaluate) {
    begin(task);
    try {
      run_and_report(task, evaluate);
    } catch (...) {
      lists.clear();
      show_outer_node();
      state_.restore_after_user_code();
      throw;
    }
    state_.restore_after_node(options_.user_code && !ran_native);
    show_outer_node();
  }

  uint64_t nodes_run() const { return nodes_run_; }

  ActiveRun active;
  GradientLists& lists;     // of the node that is running
  bool ran_native = false;  // the node that is running, or ran last, ran in the place of its apply()

 private:
  void begin(const ReadyTask& task) {
    if (options_.observer != nullptr) [[unlikely]]
      options_.observer->may_go_on(task.node);  // may throw, so before anything that is to be undone
    ++nodes_run_;
    ran_native = false;
    active.node = task.keep.get();
    if (current_node_ != nullptr) *current_node_ = host::bits_of(*task.keep);
  }
  void show_outer_node() {
    if (current_node_ != nullptr) *current_node_ = between_nodes_;
  }
  template <typename Evaluate>
  void run_and_report(const ReadyTask& task, Evaluate& evaluate) {
    const base::NodePtr& node = task.keep;
    try {
      run_profiled(*node, evaluate);
    } catch (std::exception& error) {  // stock reports no other
      lists.clear();                   // the gradients of the node that failed go before its error is reported
      report_exception(*options_.previous, node, error);
      if (options_.describe_error != nullptr)
        options_.describe_error({*node, task.node, *options_.plan, *options_.roots}, error);
      throw;
    }
  }

  ThreadState& state_;
  const RunOptions& options_;
  host::NodeBits* const current_node_;
  const host::NodeBits between_nodes_;  // what get_current_node() gives between our nodes
  uint64_t nodes_run_ = 0;
};

}  // namespace overdrive::engine
