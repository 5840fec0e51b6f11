#include "engine/node/step.h"

namespace overdrive::engine {

bool capture(const NodeStep& step, uint32_t index, base::variable_list& inputs) {
  const Plan& plan = step.plan;
  const PlannedNode& planned = plan.nodes[index];
  if (!planned.needed) call_tensor_pre_hooks(*planned.node, inputs);
  for (uint32_t at = plan.first_capture(index); at != NodeTable::kNone; at = plan.capture(at).next) {
    step.captured[plan.capture(at).output] = inputs[plan.capture(at).input_nr];
  }
  if (!planned.needed) inputs.clear();
  return planned.needed;
}

void call_watched(const NodeStep& step, uint32_t index, base::variable_list& inputs,
                  base::variable_list& outputs, const NodeCall& call) {
  base::Node& node = *step.plan.nodes[index].node;
  const NodeFacts facts{node, index, inputs};
  const RunWatches& watches = *step.watches;
  for (const auto& watch : watches) watch->before_node(facts);
  bool own = false;
  try {
    own = call_node(node, inputs, outputs, call);
  } catch (std::exception& error) {
    for (auto watch = watches.rbegin(); watch != watches.rend(); ++watch) (*watch)->node_failed(facts, error);
    throw;
  }
  for (auto watch = watches.rbegin(); watch != watches.rend(); ++watch)
    (*watch)->after_node(facts, outputs, own);
}

void refuse_added_input(const Plan& plan, uint32_t target, const base::Edge& edge) {
  TORCH_CHECK(false, "a gradient goes to input ", edge.input_nr, " of ", plan.nodes[target].node->name(),
              ", which had ", plan.num_inputs(target),
              " inputs when the backward began. A hook must not lead an edge to an input that it added.");
}

}  // namespace overdrive::engine
