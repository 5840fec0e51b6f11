#include "engine/backward.h"

#include "engine/base/counters.h"
#include "engine/base/no_destructor.h"
#include "engine/base/taskless_node.h"
#include "engine/base/whole_graph_node.h"
#include "engine/devices/device_run.h"
#include "engine/host/graph_task.h"
#include "engine/host/host_rules.h"
#include "engine/host/shared_task.h"
#include "engine/native_nodes/native_nodes.h"
#include "engine/plan/task_tables.h"
#include "engine/run/native_permission.h"
#include "engine/run/run.h"
#include "engine/run/watchers.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <atomic>
#include <optional>

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// Stock warns of backward(create_graph=true), once in a process unless told to warn always; again when the
// program's handler threw. The frame makes it do so; when it has, no frame is needed for that.
std::atomic<bool> warned_of_create_graph{false};

bool owes_create_graph_warning() {
  return !warned_of_create_graph.load(std::memory_order_relaxed) || c10::WarningUtils::get_warnAlways();
}

// Note [Native nodes beside foreign ones]: hooks and nodes of the program see the gradients that they get, the
// modes of the thread while they run, and the graph. They do not see how a node beside them made its gradient.
// So in a run with foreign code a node runs in the place of its apply() as in any other run, with four
// differences.
//  - A node with hooks runs its apply(): a hook may leave a mode on for it.
//  - A view that a native node made becomes a view as LibTorch makes it when a hook or an apply() gets it
//    (show_views()). Until then native nodes alone have it. Rejected: to mark at the beginning the nodes whose
//    result foreign code may get, because a hook may put a hook on any node.
//  - Before a native node that comes after an apply() the run looks at the thread and the process again,
//  because
//    a hook may have begun a profiler, anomaly mode or a level of forward mode.
//  - Where gradients that a foreign node returns meet others, the run looks in the modes that the node left.
//  The
//    sum is made through the dispatcher where something could notice it.
// A gradient that foreign code holds on to has another owner, or a weak one, and is not written over
// (may_be_written()).

class Backward {
 public:
  Backward(const EngineState& engine, const BackwardCall& call)
      : engine_(engine),
        call_(call),
        exact_(engine.options.exact == Exact::kAlways),
        context_(thread_context()),
        memory_(context_),
        owes_warning_(call.create_graph && call.accumulate_grad && owes_create_graph_warning()) {}

  variable_list run() {
    const bool several = call_.roots.size() != 1;
    // Several roots hang under a node of the host's own that holds their gradients, as in stock: it is
    // in the profile, takes a sequence number and comes first.
    root_ = several ? base::make_node<GraphRoot>(call_.roots, call_.gradients) : call_.roots[0].function;
    TORCH_CHECK(root_, "Overdrive was asked to begin a backward at an edge that leads nowhere.");
    memory_->plan.build({root_.get(), several, call_.outputs, call_.accumulate_grad,
                         engine_.options.own_nodes ? native_nodes::number_of : nullptr});
    if (memory_->plan.has_device_nodes()) plan_devices();
    count(base::counts::backwards);
    if (context_.innermost != nullptr) count(base::counts::nested);
    if (has_watchers()) [[unlikely]]
      run_watched();
    else
      run_in_surroundings();
    return std::move(captured_);
  }

 private:
  void run_in_surroundings() {
    switch (surroundings()) {
      case Surroundings::kBare:
        return run_bare();
      case Surroundings::kShared:
        return run_shared(*context_.innermost->task);
      case Surroundings::kFramed:
        return run_framed();
    }
  }

  // The table stands in backward.h.
  Surroundings surroundings() const {
    if (!needs_task()) return Surroundings::kBare;
    return may_share_task() ? Surroundings::kShared : Surroundings::kFramed;
  }

  [[gnu::noinline]] void run_watched() {
    const int32_t depth = context_.innermost == nullptr ? 0 : context_.innermost->depth + 1;
    WatchedRun watched({memory_->plan, call_.roots, 0, depth, call_.keep_graph, call_.create_graph});
    watched_ = &watched;
    try {
      run_in_surroundings();
    } catch (...) {
      watched_ = nullptr;
      watched.end(std::current_exception());
      throw;
    }
    watched_ = nullptr;
    watched.end(nullptr);
  }

  // Chooses the thread of each node, and takes the workers.
  void plan_devices() {
    std::optional<c10::Device> owner_device;
    if (context_.worker != nullptr) owner_device = context_.worker->device();
    devices_.emplace(memory_->plan, engine_.options.threads, owner_device);
    const auto& workers = workers_.take(engine_.engine, devices_->devices());
    for (size_t queue = workers.size(); queue > 0; --queue) {
      if (workers[queue - 1] == nullptr) devices_->give_to_caller(static_cast<QueueIndex>(queue));
    }
    workers_.drop_missing();
  }
  bool hands_over() const { return devices_.has_value() && devices_->hands_over(); }

  // Whether anything could notice that the run has no graph task of its own.
  bool needs_task() const {
    return hands_over() || memory_->plan.runs_foreign_code() || nodes_ask_for_task() || is_inside_pruned() ||
           (call_.create_graph && base::TasklessNode::exist()) || exact_ || owes_warning_ ||
           AnomalyMode::is_enabled() || engine_.saved_hooks_in_use || at::hasCallbacks() || a_mode_is_on() ||
           (watched_ != nullptr && watched_->runs_user_code());
  }

  // Nodes of a pruned run ask its task which gradients are needed, unless all are.
  bool nodes_ask_for_task() const { return memory_->plan.pruned() && !memory_->plan.wants_everything(); }

  // Why no node of this run may run in the place of its apply(): see Note [Native nodes beside foreign ones].
  // A run without a task has found no callbacks, see needs_task().
  NativeRefusal native_refusal(bool has_task) const {
    if (call_.create_graph) return NativeRefusal::kCreateGraph;
    if (devices_.has_value()) return NativeRefusal::kDevices;
    if (nodes_ask_for_task()) return NativeRefusal::kInputs;
    if (exact_) return NativeRefusal::kExact;
    if (watched_ != nullptr && watched_->runs_user_code()) return NativeRefusal::kWatch;
    return refusal_of_thread(has_task && at::hasCallbacks());
  }

  // Nodes ask the current task which gradients are needed. Inside a pruned backward the answer would be the
  // outer backward's.
  static bool is_inside_pruned() {
    const GraphTask* current = host::current_graph_task();
    return current != nullptr && !current->exec_info_.empty();
  }

  // Whether the task of the frame around this call may be borrowed: it is ours and current, no other thread is
  // inside, and its is_checkpoint_valid() already has the right value.
  bool may_share_task() const {
    const ActiveRun* outer = context_.innermost;
    if (outer == nullptr || outer->task == nullptr || outer->task != host::current_graph_task()) return false;
    if (outer->is_multithreaded || hands_over() || owes_warning_) return false;
    return !(memory_->plan.pruned() && engine_.engine.is_checkpoint_valid());
  }

  // See Note [View readers]; a few nodes are listed faster than asked about.
  bool fills_task_tables() const {
    constexpr size_t kFew = 8;
    if (exact_) return true;
    return memory_->plan.runs_foreign_code() &&
           (memory_->plan.nodes.size() <= kFew || host::task_tables_have_readers());
  }

  void ask_whole_graph_nodes() const {
    if (!memory_->plan.pruned() && !call_.create_graph) return;
    if (!memory_->plan.runs_foreign_code() || !base::WholeGraphNode::exist()) return;
    for (const PlannedNode& planned : memory_->plan.nodes) {
      const auto* node = planned.needed ? dynamic_cast<const base::WholeGraphNode*>(planned.node) : nullptr;
      if (node != nullptr) node->check_backward();
    }
  }

  void run_plan(ThreadState& state, GraphTask* task) {
    ask_whole_graph_nodes();
    const bool user_code = task != nullptr;
    const bool tables = task != nullptr && fills_task_tables();
    if (task != nullptr && memory_->plan.pruned()) {
      fill_exec_info(*task, memory_->plan, call_.outputs, call_.accumulate_grad);
    }
    if (tables) fill_task_tables(*task, memory_->plan);
    std::unique_ptr<RunWatch> observer;
    if (engine_.observers != nullptr) observer = engine_.observers(memory_->plan);
    if (watched_ != nullptr) watched_->set_observer(observer.get());
    const RunOptions options{
        .keep_graph = call_.keep_graph,
        .user_code = user_code,
        .previous = &engine_.engine.previous(),
        .task = task,
        .current_node =
            task == nullptr ? nullptr : HostFrame::current_node_place(engine_.engine, context_.frames),
        .task_tables = tables,
        .observer = watched_ == nullptr ? observer.get() : watched_,
        .run_native = engine_.options.own_nodes ? native_nodes::run : nullptr,
        .native_refusal = engine_.options.own_nodes ? native_refusal(task != nullptr) : NativeRefusal::kNone,
        .watches = watched_ == nullptr ? nullptr : watched_->watches(),
        .describe_error = engine_.describe_error,
        .plan = &memory_->plan,
        .roots = &call_.roots};
    const auto finish = [this](auto&& run) {
      run.run(std::move(root_), call_.roots, call_.gradients);
      captured_ = run.take_captured();
    };
    if (devices_.has_value()) {
      finish(DeviceRun(engine_.engine, context_, *memory_, state, *devices_, workers_, options));
    } else {
      finish(Run(context_, *memory_, state, options));
    }
  }

  // Warnings wait until the end, also when the end is an error.
  template <typename Body>
  void collecting_warnings(Body&& body) {
    host::WarningCollector warnings;
    try {
      body(warnings);
    } catch (...) {
      if (!base::thread_is_ending()) warnings.replay();
      throw;
    }
    warnings.replay();
  }

  void run_bare() {
    count(base::counts::frames_elided);
    collecting_warnings([&](host::WarningCollector& warnings) {
      const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
      ThreadState state(ThreadState::Code::kHost, call_.create_graph);
      run_plan(state, nullptr);
    });
  }

  void run_shared(GraphTask& task) {
    collecting_warnings([&](host::WarningCollector& warnings) {
      SharedTask shared(task, call_.keep_graph, call_.roots);
      ThreadState state(ThreadState::Code::kUser, call_.create_graph,
                        context_.innermost->state.whole_if_unchanged());
      {
        const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
        ThreadState inner(ThreadState::Code::kUser, call_.create_graph, state.whole());
        run_plan(inner, &task);
      }
      shared.run_callbacks();
      state.restore_after_user_code();
    });
  }

  void run_framed() {
    const FrameRequest request{.keep_graph = call_.keep_graph,
                               .create_graph = call_.create_graph,
                               .warn_create_graph = owes_warning_,
                               .pruned = memory_->plan.pruned(),
                               .roots = &call_.roots};
    HostFrame::run(engine_.engine, context_.frames, request, [&] {
      if (owes_warning_) warned_of_create_graph.store(true, std::memory_order_relaxed);
      GraphTask& task = *host::current_graph_task();
      ThreadState state(ThreadState::Code::kUser, call_.create_graph, &task.thread_locals_);
      run_plan(state, &task);
    });
  }

  const EngineState& engine_;
  const BackwardCall& call_;
  const bool exact_;
  ThreadContext& context_;
  RunMemoryLease memory_;
  std::optional<DevicePlan> devices_;  // of a graph with device nodes
  WorkerLease workers_;
  const bool owes_warning_;
  WatchedRun* watched_ = nullptr;  // while it is followed
  base::NodePtr root_;
  variable_list captured_;
};

}  // namespace

variable_list run_backward(const EngineState& state, const BackwardCall& call) {
  return Backward(state, call).run();
}

}  // namespace overdrive::engine
