#include "engine/node/node_call.h"

#include "engine/node/gradient_check.h"
#include "engine/node/lent_memory.h"

#include <ATen/DeviceGuard.h>

namespace overdrive::engine {

using namespace torch::autograd;

namespace {
variable_list apply(Node& node, variable_list&& gradients) {
  if (!LentMemory::in_use()) return node(std::move(gradients));
  const LentMemory lent(gradients);
  variable_list outputs = node(std::move(gradients));
  lent.keep_out_of(outputs);
  return outputs;
}
}  // namespace

void call_tensor_pre_hooks(Node& node, variable_list& gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
}

variable_list call_node(Node& node, variable_list& gradients, bool keep_graph) {
  call_tensor_pre_hooks(node, gradients);
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
  if (!keep_graph) node.will_release_variables();

  if (node.post_hooks().empty()) [[likely]] {
    variable_list outputs = apply(node, std::move(gradients));
    check_gradients(node, outputs);
    // A post-hook that apply() added gets no inputs: they were given away.
    for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, {});
    return outputs;
  }
  // AccumulateGrad takes a gradient over when two references to it exist and the node has
  // post-hooks: ours, kept for them, and its own.
  variable_list outputs;
  {
    variable_list copy = gradients;
    outputs = apply(node, std::move(copy));
  }
  check_gradients(node, outputs);
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, gradients);
  return outputs;
}

void check_for_nan(Node& node, const variable_list& gradients) {
  AutoGradMode no_grad(false);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    const at::OptionalDeviceGuard device(at::device_of(gradient));
    TORCH_CHECK(!gradient.defined() || !at::isnan(gradient)._is_any_true().item<bool>(), "Function '",
                node.name(), "' returned nan values in its ", i, "th output.");
  }
}

}  // namespace overdrive::engine
