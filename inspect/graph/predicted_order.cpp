#include "inspect/graph/predicted_order.h"

#include "engine/plan/serial_order.h"
#include "engine/run/active_run.h"
#include "engine/run/thread_context.h"
#include "inspect/graph/root_group.h"

namespace overdrive::inspect {
namespace {

// The edges that LibTorch asks the engine for. An input that no backward can reach has none.
base::edge_list edges_of(const std::vector<at::Tensor>& inputs) {
  base::edge_list edges;
  for (const at::Tensor& input : inputs) {
    base::NodePtr node = input.grad_fn();
    if (!node) node = torch::autograd::impl::try_get_grad_accumulator(input);
    if (node) edges.emplace_back(std::move(node), input.output_nr());
  }
  return edges;
}

// The tasks that this thread has ready already, for a backward that begins inside another.
engine::WaitingTasks waiting_tasks() {
  engine::ThreadContext& context = engine::thread_context();
  engine::WaitingTasks waiting;
  for (const engine::ReadyTask& task : context.heap.tasks()) waiting.ranks.push_back(task.rank);
  if (context.innermost != nullptr) waiting.depth = context.innermost->depth + 1;
  return waiting;
}

}  // namespace

std::vector<OrderedNode> predicted_order(const std::vector<at::Tensor>& roots,
                                         const std::vector<at::Tensor>& inputs, InputsOf call) {
  const RootGroup group(roots);
  const base::edge_list outputs = edges_of(inputs);
  std::vector<OrderedNode> order;
  if (!inputs.empty() && outputs.empty()) return order;  // no input is in the graph: nothing runs
  engine::Plan plan;
  const bool accumulates = inputs.empty() || call == InputsOf::kBackward;
  plan.build({group.root().get(), group.has_several(), outputs, accumulates});
  for (const uint32_t index : engine::serial_order(plan, waiting_tasks())) {
    if (index == 0 && group.has_several()) continue;
    const engine::PlannedNode& planned = plan.nodes[index];
    if (!planned.may_run) continue;  // a root that leads to no input
    order.push_back({planned.node, planned.node->name(), planned.node->sequence_nr(), !planned.needed});
  }
  return order;
}

}  // namespace overdrive::inspect
