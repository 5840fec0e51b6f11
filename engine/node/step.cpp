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

}  // namespace overdrive::engine
