#include "forward_ad/drivers/reverse.h"
#include "forward_ad/layers/host_level.h"
#include "forward_ad/layers/layers.h"
#include "forward_ad/levels/bare_level.h"
#include "forward_ad/levels/tangents.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

namespace {
void check_cotangents(const Tensors& outputs, const Tensors& cotangents) {
  TORCH_CHECK(outputs.size() == cotangents.size(), "pullback: the function has ", outputs.size(),
              " outputs, but ", cotangents.size(), " cotangents were given.");
  for (size_t i = 0; i < outputs.size(); ++i) {
    TORCH_CHECK(!cotangents[i].defined() || cotangents[i].sizes() == outputs[i].sizes(), "pullback: output ", i,
                " has shape ", outputs[i].sizes(), ", its cotangent ", cotangents[i].sizes(), ".");
  }
}

// A tensor of its own in the graph: part of the graph around it, or a new leaf.
at::Tensor mark(const at::Tensor& tensor) {
  if (!is_differentiable(tensor)) return tensor;
  return tensor.requires_grad() ? tensor.view_as(tensor) : tensor.detach().set_requires_grad(true);
}

// vjp with a reverse-mode layer of its own. It is exact for every tensor that f takes from outside, because
// such a tensor requires gradients below the layer.
detail::Vjp vjp_on_new_layer(const detail::Function& f, const Tensors& inputs) {
  GradLayer layer;
  Tensors marked;
  for (const at::Tensor& input : inputs) {
    marked.push_back(is_differentiable(input) ? layer.wrap(input).set_requires_grad(true) : input);
  }
  detail::Output recorded = f(marked);
  detail::Vjp result;
  for (const at::Tensor& value : recorded.values) result.output.values.push_back(layer.unwrap(value));
  for (const at::Tensor& aux : recorded.aux) result.output.aux.push_back(layer.unwrap(aux));
  // Called when the layer is gone. Its wrappers are dead then, and the operators of the backward run on their
  // values, on the layers around.
  result.pullback = [outputs = std::move(recorded.values), marked, inputs](const Tensors& cotangents) {
    const bool wanted = c10::GradMode::is_enabled(), record = wanted || forward_mode_around();
    Tensors gradients = pull_back(outputs, marked, cotangents, record, inputs);
    return record == wanted ? gradients : without_history(std::move(gradients));
  };
  return result;
}

}  // namespace

Tensors InferenceModeExit::usable(const Tensors& tensors) const {
  if (!outside_.has_left()) return tensors;
  Tensors copies;
  for (const at::Tensor& tensor : tensors)
    copies.push_back(tensor.defined() && tensor.is_inference() ? tensor.clone() : tensor);
  return copies;
}

bool forward_mode_around() {
  const LayerStack& stack = ft::getDynamicLayerStack();
  return host_level::has_plain_tangents() || std::any_of(stack.begin(), stack.end(), [](const Layer& layer) {
           return layer.key() == ft::TransformType::Jvp;
         });
}

Tensors without_history(Tensors tensors) {
  auto is_plain = [](const at::Tensor& part) {
    return ft::maybeGetTensorWrapper(part) == nullptr && ft::maybeGetBatchedImpl(part) == nullptr;
  };
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    auto captured = CapturedTangents::capture(tensor);
    for (at::Tensor& part : captured.parts()) {
      // One that still has a tangent is the program's own dual: detaching would take it away.
      if (part.requires_grad() && is_plain(part) && !plain_tangent(part).defined()) part = part.detach();
    }
    tensor = captured.restore();  // on wrappers that have no history
  }
  return tensors;
}

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

bool any_requires_grad(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
}

Tensors pull_back(const Tensors& outputs, const Tensors& inputs, const Tensors& cotangents, bool create_graph,
                  const Tensors& zeros_like) {
  check_cotangents(outputs, cotangents);
  Tensors roots, seeds, leaves;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !cotangents[i].defined()) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(cotangents[i]);
  }
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) leaves.push_back(input);
  }
  Tensors found(leaves.size());
  if (!roots.empty() && !leaves.empty()) {
    found =
        torch::autograd::grad(roots, leaves, seeds, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
  }
  Tensors gradients;
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    at::Tensor gradient;
    if (inputs[i].defined() && inputs[i].requires_grad()) gradient = std::move(found[next++]);
    if (gradient.defined()) {
      living_wrapper(gradient);
    } else if (zeros_like[i].defined()) {
      gradient = at::zeros_like(zeros_like[i]);
    }
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

detail::Vjp vjp_below_layers(const detail::Function& f, const Tensors& inputs) {
  TORCH_INTERNAL_ASSERT(ft::getDynamicLayerStack().empty());
  c10::AutoGradMode enabled(true);
  Tensors marked;
  for (const at::Tensor& input : inputs) marked.push_back(mark(input));
  bool in_a_graph = any_requires_grad(inputs);
  detail::Output recorded = f(marked);
  detail::Vjp result;
  for (const at::Tensor& value : recorded.values) {
    result.output.values.push_back(in_a_graph ? value : value.detach());
  }
  result.output.aux = std::move(recorded.aux);
  result.pullback = [outputs = std::move(recorded.values), marked, inputs,
                     in_a_graph](const Tensors& cotangents) {
    bool create_graph = c10::GradMode::is_enabled() && (in_a_graph || any_requires_grad(cotangents));
    return pull_back(outputs, marked, cotangents, create_graph, inputs);
  };
  return result;
}

// Plain reverse mode is exact without a level around and without grad mode, and spares every operator the way
// through a layer. It detaches the inputs, so it is not used where plain tensors may have tangents.
detail::Vjp vjp_unchecked(const detail::Function& f, const Tensors& inputs) {
  if (!ft::getDynamicLayerStack().empty() || c10::GradMode::is_enabled() || host_level::has_plain_tangents())
    return vjp_on_new_layer(f, inputs);
  Tensors detached;
  for (const at::Tensor& input : inputs) detached.push_back(input.requires_grad() ? input.detach() : input);
  detail::Vjp result = vjp_below_layers(f, detached);
  for (at::Tensor& aux : result.output.aux) {
    if (aux.defined()) aux = aux.detach();
  }
  return result;
}

detail::Vjp detail::vjp(const Function& f, const Tensors& inputs) {
  check_differentiable("vjp", inputs);
  const InferenceModeExit exit;
  const Function checked = [&f](const Tensors& marked) { return call("vjp", f, marked); };
  Vjp result = vjp_unchecked(checked, exit.usable(inputs));
  result.pullback = [inner = std::move(result.pullback)](const Tensors& cotangents) {
    const InferenceModeExit again;
    return inner(again.usable(cotangents));
  };
  return result;
}

}  // namespace overdrive::forward_ad
