#include "engine/node/node_call.h"

#include "engine/node/gradient_check.h"
#include "engine/node/lent_memory.h"

#include <ATen/DeviceGuard.h>

namespace overdrive::engine {

using namespace torch::autograd;

namespace {
bool apply(Node& node, variable_list& gradients, variable_list& outputs, const NodeCall& call) {
  if (call.own != 0 && call.run_own != nullptr &&
      call.run_own(call.own, node, gradients, outputs, call.views_are_seen)) {
    return true;
  }
  if (!LentMemory::in_use()) {
    outputs = node(std::move(gradients));
    return false;
  }
  const LentMemory lent(gradients);
  outputs = node(std::move(gradients));
  lent.keep_out_of(outputs);
  return false;
}
}  // namespace

void call_tensor_pre_hooks(Node& node, variable_list& gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
}

bool call_node(Node& node, variable_list& gradients, variable_list& outputs, const NodeCall& call) {
  call_tensor_pre_hooks(node, gradients);
  for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
  if (!call.keep_graph) node.will_release_variables();

  if (node.post_hooks().empty()) [[likely]] {
    const bool own = apply(node, gradients, outputs, call);
    check_gradients(node, outputs, /*below_autograd=*/call.run_own != nullptr && !call.views_are_seen);
    // A post-hook that apply() added gets no inputs: they were given away.
    for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, {});
    return own;
  }
  // AccumulateGrad takes a gradient over when two references to it exist and the node has
  // post-hooks: ours, kept for them, and its own.
  {
    variable_list copy = gradients;
    apply(node, copy, outputs, {.keep_graph = call.keep_graph});
  }
  check_gradients(node, outputs, /*below_autograd=*/false);
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, gradients);
  return false;
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
