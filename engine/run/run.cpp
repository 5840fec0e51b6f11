#include "engine/run/run.h"

#include "engine/base/counters.h"
#include "engine/base/fault.h"
#include "engine/base/thread_end.h"
#include "engine/host/host.h"
#include "engine/host/host_frame.h"
#include "engine/node/grad_sum.h"
#include "engine/node/node_call.h"
#include "engine/plan/graph_views.h"

#include <algorithm>

namespace overdrive::engine {

using namespace torch::autograd;

bool visit_pruned(const Plan& plan, uint32_t index, variable_list& inputs, variable_list& captured) {
  const PlannedNode& planned = plan.nodes[index];
  // The hooks of a needed node run when it does; the capture is then taken before them.
  if (!planned.needed && !OVERDRIVE_FAULT(kCaptureAfterHooks)) call_tensor_pre_hooks(*planned.node, inputs);
  for (uint32_t at = plan.first_capture(index); at != NodeTable::kNone; at = plan.capture(at).next) {
    captured[plan.capture(at).output] = inputs[plan.capture(at).input_nr];
  }
  if (!planned.needed && OVERDRIVE_FAULT(kCaptureAfterHooks)) call_tensor_pre_hooks(*planned.node, inputs);
  if (!planned.needed) inputs.clear();
  return planned.needed;
}

Run::Run(ThreadContext& context, RunMemory& memory, ThreadState& state, const RunOptions& options)
    : context_(context),
      memory_(memory),
      state_(state),
      options_(options),
      active_(context, options.task, state),
      outer_node_(options.current_node == nullptr ? host::NodeBits() : *options.current_node),
      captured_(memory.plan.num_captured()) {}

Run::~Run() {
  count(Count::kNodes, nodes_run_);
  if (ready_ != 0) context_.abandon(this);
}

void Run::run(base::NodePtr root, const edge_list& root_edges, const variable_list& gradients) {
  memory_.slots.resize(memory_.plan.num_slots());
  if (memory_.plan.num_inputs(0) != 0) memory_.slots[root_edges[0].input_nr] = gradients[0];
  make_ready(0, std::move(root));
  run_ready();
  TORCH_CHECK(incomplete_ == 0, "could not compute gradients for some functions");
}

void Run::run_ready() {
  while (ready_ != 0) {
    ReadyTask task = context_.heap.pop();
    if (task.run == nullptr) continue;  // of a nested backward that failed
    TORCH_INTERNAL_ASSERT(task.run == this);
    --ready_;
    ++nodes_run_;
    step(task);
  }
}

void Run::step(ReadyTask& task) {
  PlannedNode& planned = memory_.plan.nodes[task.node];
  active_.node = planned.node;
  show_node(*planned.node);
  if (options_.observer != nullptr) [[unlikely]]
    options_.observer->begins(task.node);
  try {
    run_and_report(task, planned);
  } catch (...) {
    show_outer_node();
    state_.restore_after_user_code();
    throw;
  }
  restore_state();
  show_outer_node();
}

// To report may fail, too: it asks the node its name.
void Run::run_and_report(const ReadyTask& task, PlannedNode& planned) {
  try {
    run_profiled(*planned.node, [&] { evaluate(task.node, planned); });
  } catch (...) {
    memory_.outputs.clear();
    memory_.inputs.clear();  // the gradients of the node that failed go before anything is said of it
    if (!base::thread_is_ending()) report(task.keep);
    throw;
  }
}

// The error that is being handled, to the engine before us: it may have something to say of the node.
void Run::report(const base::NodePtr& node) {
  try {
    throw;
  } catch (std::exception& error) {
    report_exception(*options_.previous, node, error);
  } catch (...) {  // stock reports no other
  }
}

void Run::evaluate(uint32_t index, PlannedNode& planned) {
  Node& node = *planned.node;
  take_inputs(index);
  if (OVERDRIVE_FAULT(kCaptureAfterHooks) && planned.needed) call_tensor_pre_hooks(node, memory_.inputs);
  if (memory_.plan.pruned() && !visit_pruned(memory_.plan, index, memory_.inputs, captured_)) return;
  variable_list& outputs = memory_.outputs;
  call_node(node, memory_.inputs, outputs,
            {.keep_graph = options_.keep_graph,
             .run_own = options_.run_own,
             .own = planned.own,
             .views_are_seen = memory_.plan.num_captured() != 0});
  memory_.inputs.clear();
  if (!options_.keep_graph) node.release_variables();
  if (outputs.empty()) return;
  if (AnomalyMode::is_enabled() && AnomalyMode::should_check_nan()) [[unlikely]]
    check_for_nan(node, outputs);
  distribute(index, outputs);
  outputs.clear();
}

// By move, so that AccumulateGrad finds itself the only owner exactly when it does with stock.
void Run::take_inputs(uint32_t index) {
  const uint32_t count = memory_.plan.num_inputs(index);
  memory_.inputs.clear();
  memory_.inputs.reserve(count);
  at::Tensor* slot = memory_.slots.data() + memory_.plan.nodes[index].first_slot;
  for (uint32_t i = 0; i < count; ++i) {
    memory_.inputs.push_back(OVERDRIVE_FAULT(kKeepGradient) ? slot[i] : std::move(slot[i]));
  }
  add_late_inputs(*memory_.plan.nodes[index].node, memory_.inputs);
}

void Run::distribute(uint32_t index, variable_list& outputs) {
  const edge_list& edges = memory_.plan.nodes[index].node->next_edges();
  const size_t known = std::min(outputs.size(), edges.size());
  for (size_t i = 0; i < known; ++i) {
    const Edge& edge = edges[i];
    if (edge.is_valid()) arrive(target_of(index, i, edge), edge, std::move(outputs[i]));
  }
}

// Where an edge leads: as planned, or, when a hook changed the edge, wherever it leads now, as
// long as that node is part of the plan and still waits.
uint32_t Run::target_of(uint32_t index, size_t edge_index, const Edge& edge) const {
  const Plan& plan = memory_.plan;
  const Node* node = edge.function.get();
  if (edge_index < plan.num_edges(index)) [[likely]] {
    const uint32_t target = plan.targets[plan.nodes[index].first_edge + edge_index];
    if (target != NodeTable::kNone && plan.nodes[target].node == node && plan.nodes[target].waiting != 0)
        [[likely]] {
      return target;
    }
  }
  const uint32_t target = plan.find(node);
  TORCH_CHECK(target != NodeTable::kNone && plan.nodes[target].waiting != 0, "dependency not found for ",
              node->name());
  return target;
}

void Run::arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient) {
  PlannedNode& planned = memory_.plan.nodes[target];
  planned.waiting -= 1;
  const bool last = planned.waiting == 0;
  if (options_.graph_views) note_arrival(*options_.task, planned.node);
  if (!planned.may_run) return;
  if (OVERDRIVE_FAULT(kLoseUndefined) && !gradient.defined()) {
    gradient = planned.node->input_metadata(edge.input_nr).zeros_like();
  }
  add_gradient(memory_.slots[planned.first_slot + edge.input_nr], std::move(gradient), planned.node,
               options_.run_own != nullptr);
  if (last) {
    incomplete_ -= planned.reached;
    make_ready(target, edge.function);
  } else if (!planned.reached) {
    planned.reached = true;
    ++incomplete_;
  }
}

void Run::make_ready(uint32_t index, base::NodePtr node) {
  ++ready_;
  uint64_t sequence_nr = node->sequence_nr();
  if (OVERDRIVE_FAULT(kDropTieRule) && sequence_nr == UINT64_MAX) sequence_nr -= index;
  context_.heap.push({{active_.depth, sequence_nr}, index, this, std::move(node)});
}

void Run::restore_state() {
  if (OVERDRIVE_FAULT(kSkipTlsRestore)) return;
  state_.restore_after_node(options_.user_code);
}

}  // namespace overdrive::engine
