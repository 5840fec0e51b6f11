#include "forward_ad/drivers/custom_jvp.h"

#include "engine/base/generator_states.h"
#include "engine/base/tensor_version.h"
#include "forward_ad/drivers/reverse.h"
#include "forward_ad/layers/dual_layout.h"
#include "forward_ad/layers/layers.h"
#include "forward_ad/levels/bare_level.h"

#include <ATen/ATen.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <c10/core/GradMode.h>

#include <algorithm>

// Note [Custom functions on layers]
// A custom Function is not an operator, so the layer stack cannot send it from layer to layer as it does with
// operators; LibTorch refuses it there. call_custom() sends it: it calls the function below the top layer with
// the inputs' values, and then does the work of the top layer by hand. For a forward layer that is the rule,
// computed below the layer from values and tangents. For a reverse layer it is a node that computes the
// *pullback*, (x, u) -> J(x)^T u. The pullback is a custom function itself. When the node runs, it is sent from
// layer to layer like the first, and it has a pullback of its own. So any mixture of layers ends at plain calls
// below the lowest layer, where LibTorch's engine runs backward().
//
// Below all layers a tensor may still have a tangent on LibTorch's level 0: that of a bare level, or the
// program's. Plain tensors are treated as on a forward layer, and, because reverse mode records the same
// tensors, as on a reverse layer too: the node keeps the inputs with their tangents, which LibTorch's own node
// for a Function would not see.
//
// The price is that a pullback runs forward() again, with the same random numbers. Rejected: recording the call
// once below the reverse layer. On a forward layer there is no node that could be recorded.

namespace overdrive::forward_ad::detail {

namespace ft = at::functorch;

namespace {
bool any_defined(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return t.defined(); });
}

at::Tensor tangent_of(const at::Tensor& tensor, LayerLife life) {
  auto* wrapper = tensor.defined() ? ft::maybeGetTensorWrapper(tensor) : nullptr;
  if (wrapper == nullptr || life_of(*wrapper) != life) return {};
  c10::AutoFwGradMode enabled(true);
  return unwrap_from(tensor._fw_grad(0), life);
}

Tensors tangents_of_outputs(const CustomFunctionPtr& function, const Tensors& inputs, const Tensors& outputs,
                            Tensors tangents) {
  TORCH_CHECK(
      function->jvp || function->double_vjp, function->name,
      " has no forward rule, so forward mode cannot differentiate it. Give it `static Tensors jvp(inputs, "
      "outputs, tangents, ...)`, or derive it from DoubleVjp instead of CustomJvp.");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && !tangents[i].defined()) tangents[i] = at::zeros_like(inputs[i]);
  }
  Tensors result = function->jvp ? function->jvp(inputs, outputs, tangents)
                                 : double_vjp(function, inputs, outputs, tangents);
  TORCH_CHECK(result.size() == outputs.size(), "The forward rule of ", function->name, " returned ",
              result.size(), " tangents but the function has ", outputs.size(), " outputs.");
  for (size_t i = 0; i < outputs.size(); ++i) {
    TORCH_CHECK(!result[i].defined() || result[i].sizes() == outputs[i].sizes(), "The forward rule of ",
                function->name, " returned a tangent of shape ", result[i].sizes(), " for output ", i,
                ", which has shape ", outputs[i].sizes(), ".");
  }
  return result;
}

Tensors values_below(const Tensors& inputs, LayerLife life) {
  Tensors values;
  for (const at::Tensor& input : inputs) values.push_back(unwrap_from(input, life));
  return values;
}

void wrap_all(Tensors& tensors, const Layer& layer) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined()) tensor = ft::makeTensorWrapper(tensor, layer.interpreter());
  }
}

VmapInfo vmap_info_of(const Layer& layer) {
  const auto randomness = layer.randomness();
  return {layer.batchSize().guard_int(__FILE__, __LINE__),
          randomness == ft::RandomnessType::Error       ? Randomness::kError
          : randomness == ft::RandomnessType::Different ? Randomness::kDifferent
                                                        : Randomness::kSame};
}

Tensors on_forward_layer(const CustomFunctionPtr& function, const Tensors& inputs, const Layer& layer,
                         size_t position) {
  TORCH_CHECK(
      !c10::GradMode::is_enabled() || !any_requires_grad(inputs), function->name,
      " cannot be recorded for reverse mode on the layer of a forward level; use vjp inside the level.");
  Tensors values = values_below(inputs, life_of(layer)), tangents;
  for (const at::Tensor& input : inputs) tangents.push_back(tangent_of(input, life_of(layer)));
  Tensors outputs, slopes;
  {
    BelowLayer below(position - 1);
    outputs = call_custom(function, values);
    if (any_defined(tangents)) slopes = tangents_of_outputs(function, values, outputs, std::move(tangents));
    for (size_t i = 0; i < slopes.size(); ++i) {
      if (slopes[i].defined()) outputs[i] = primal_that_takes(outputs[i], slopes[i]);
    }
  }
  wrap_all(outputs, layer);
  wrap_all(slopes, layer);
  for (size_t i = 0; i < slopes.size(); ++i) {
    if (slopes[i].defined() && is_differentiable(outputs[i])) outputs[i]._set_fw_grad(slopes[i], 0, false);
  }
  return outputs;
}

Tensors on_reverse_layer(const CustomFunctionPtr& function, const Tensors& inputs, const Layer& layer,
                         size_t position) {
  Tensors values = values_below(inputs, life_of(layer)), outputs;
  {
    BelowLayer below(position - 1);
    outputs = call_custom(function, values);
  }
  Tensors shapes = outputs;
  wrap_all(outputs, layer);
  if (c10::GradMode::is_enabled() && any_requires_grad(inputs)) {
    set_pullback(function, std::move(values), std::move(shapes), inputs, outputs);
  }
  return outputs;
}

// Tensors that do not vary along the hidden dimension of a vmap layer go below it as they are.
Tensors on_vmap_layer(const CustomFunctionPtr& function, const Tensors& inputs, const Layer& layer,
                      size_t position) {
  Tensors below_layer;
  VmapDims dims;
  for (const at::Tensor& input : inputs) {
    auto [value, dim] = input.defined() ? ft::unwrapTensorAtLevel(input, layer.layerId())
                                        : std::tuple<at::Tensor, std::optional<int64_t>>();
    below_layer.push_back(std::move(value));
    dims.push_back(dim);
  }
  const bool varies = std::any_of(dims.begin(), dims.end(), [](const auto& dim) { return dim.has_value(); });
  TORCH_CHECK(
      !varies || function->vmap, function->name,
      " has no vmap rule. Give it `static VmapResult vmap(info, in_dims, inputs, ...)`, or call it in a "
      "loop over the rows instead of inside vmap.");
  VmapResult result;
  {
    BelowLayer below(position - 1);
    if (!varies) return call_custom(function, inputs);
    result = function->vmap(vmap_info_of(layer), dims, below_layer);
  }
  TORCH_CHECK(result.outputs.size() == result.out_dims.size(), "The vmap rule of ", function->name,
              " returned ", result.outputs.size(), " results and ", result.out_dims.size(),
              " dimensions; it must return one for each.");
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    at::Tensor& output = result.outputs[i];
    const std::optional<int64_t>& dim = result.out_dims[i];
    if (!dim || !output.defined()) continue;
    TORCH_CHECK(
        *dim >= -output.dim() && *dim < output.dim() && output.size(*dim) == vmap_info_of(layer).batch_size,
        "The vmap rule of ", function->name, " returned result ", i, " of shape ", output.sizes(),
        " with its rows along dimension ", *dim, ", but there are ", vmap_info_of(layer).batch_size, " rows.");
    output = ft::makeBatched(output, *dim < 0 ? *dim + output.dim() : *dim, layer.layerId());
  }
  return std::move(result.outputs);
}

// Tangents and history of an argument do not see what the function writes into it.
class WrittenArguments {
 public:
  explicit WrittenArguments(const Tensors& inputs) : inputs_(inputs) {
    for (const at::Tensor& input : inputs) versions_.push_back(version_of(input));
  }
  void check(const CustomFunction& function) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      TORCH_CHECK(version_of(inputs_[i]) == versions_[i], function.name, " writes into its tensor argument ", i,
                  " (mark_dirty), which is not possible where that is differentiated by a level or a driver: "
                  "let it return a new tensor.");
    }
  }

 private:
  static int64_t version_of(const at::Tensor& tensor) {
    return tensor.defined() ? base::version_of(innermost_of(tensor)) : 0;
  }
  const Tensors& inputs_;
  std::vector<int64_t> versions_;
};

// Tangents and history on the same tensors: no layer takes them apart.
Tensors on_plain_tensors(const CustomFunctionPtr& function, const Tensors& inputs, Tensors tangents,
                         const WrittenArguments& written) {
  const bool record = c10::GradMode::is_enabled() && any_requires_grad(inputs);
  Tensors detached, primals, outputs;
  for (const at::Tensor& input : inputs) {
    detached.push_back(input.defined() ? input.detach() : input);
    primals.push_back(input.defined() && record ? input._fw_primal(0) : detached.back());
  }
  {
    c10::AutoGradMode mode(c10::GradMode::is_enabled() && !record);
    outputs = function->apply(detached);
  }
  written.check(*function);
  if (record) {
    Tensors shapes;
    for (const at::Tensor& output : outputs) shapes.push_back(output.detach());
    set_pullback(function, inputs, std::move(shapes), inputs, outputs);
  }
  Tensors slopes = tangents_of_outputs(function, primals, outputs, std::move(tangents));
  for (size_t i = 0; i < slopes.size(); ++i) {
    if (!slopes[i].defined() || !is_differentiable(outputs[i])) continue;
    outputs[i] = primal_that_takes(outputs[i], slopes[i]);
    outputs[i]._set_fw_grad(with_layout_of(outputs[i], slopes[i]), 0, false);
  }
  return outputs;
}

// The pullback runs forward() again, with the same random numbers.
Tensors run_first(const CustomFunctionPtr& function, const Tensors& inputs, auto run) {
  if (function->numbers) return run();
  function->numbers = std::make_shared<base::GeneratorStates>(base::GeneratorStates::of_devices_in_use(inputs));
  Tensors outputs = run();
  function->numbers->keep_what_moved();
  return outputs;
}

Tensors below_all_layers(const CustomFunctionPtr& function, const Tensors& inputs) {
  Tensors tangents;
  for (const at::Tensor& input : inputs)
    tangents.push_back(input.defined() ? plain_tangent(input) : at::Tensor());
  if (!any_defined(tangents)) return function->apply(inputs);
  WrittenArguments written(inputs);
  return run_first(function, inputs,
                   [&] { return on_plain_tensors(function, inputs, std::move(tangents), written); });
}

Tensors on_top_layer(const CustomFunctionPtr& function, const Tensors& inputs) {
  const LayerStack& stack = ft::getDynamicLayerStack();
  // A copy: what is called below leaves the layer.
  const Layer top = stack.back();  // NOLINT(performance-unnecessary-copy-initialization)
  if (top.key() == ft::TransformType::Jvp) return on_forward_layer(function, inputs, top, stack.size());
  if (top.key() == ft::TransformType::Grad) return on_reverse_layer(function, inputs, top, stack.size());
  TORCH_CHECK(top.key() == ft::TransformType::Vmap, function->name, " cannot run under functionalization.");
  return on_vmap_layer(function, inputs, top, stack.size());
}

}  // namespace

void check_list_argument(const std::string& name, at::TensorList list) {
  for (at::Tensor tensor : list) {
    while (tensor.defined()) {
      auto* wrapper = living_wrapper(tensor);
      TORCH_CHECK(!plain_tangent(tensor).defined() && !(wrapper != nullptr && tensor.requires_grad()), name,
                  ": a tensor in a list argument is differentiated by a level or a driver, which sees tensor "
                  "arguments only. Pass it as an argument of its own.");
      if (wrapper == nullptr) break;
      tensor = at::Tensor(wrapper->value());
    }
  }
}

Tensors call_custom(const CustomFunctionPtr& function, const Tensors& inputs) {
  const LayerStack& stack = ft::getDynamicLayerStack();
  Tensors living = inputs;
  substitute_in(living);
  for (at::Tensor& input : living) {
    if (input.defined()) living_wrapper(input);
  }
  if (stack.empty()) return below_all_layers(function, living);
  WrittenArguments written(living);
  Tensors outputs = run_first(function, living, [&] { return on_top_layer(function, living); });
  written.check(*function);
  return outputs;
}

}  // namespace overdrive::forward_ad::detail
