#include "engine/base/generator_states.h"
#include "engine/base/torch_types.h"
#include "forward_ad/drivers/reverse.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <optional>
#include <utility>

namespace overdrive::forward_ad::detail {
namespace {
Tensors joined(Tensors first, const Tensors& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The tensor with its rows along dimension 0; one that all rows share is repeated.
at::Tensor in_rows(const at::Tensor& tensor, const std::optional<int64_t>& dim, int64_t rows) {
  if (!tensor.defined()) return tensor;
  if (dim) return tensor.movedim(*dim, 0);
  std::vector<int64_t> sizes{rows};
  sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
  return tensor.unsqueeze(0).expand(sizes);
}

// Rows do not see each other, so the pullback of all rows at once is the pullback of each. An input that rows
// share has a gradient for each row, so it is repeated first.
VmapResult pull_back_rows(const CustomFunction& function, size_t input_count, const VmapInfo& info,
                          const VmapDims& dims, const Tensors& arguments) {
  Tensors inputs, cotangents;
  for (size_t i = 0; i < arguments.size(); ++i) {
    (i < input_count ? inputs : cotangents).push_back(in_rows(arguments[i], dims[i], info.batch_size));
  }
  VmapDims first;
  for (const at::Tensor& input : inputs)
    first.push_back(input.defined() ? std::optional<int64_t>(0) : std::nullopt);
  auto call = [&](const Tensors& rows) -> Output {
    std::optional<base::GeneratorsBack> again;
    if (function.numbers) again.emplace(*function.numbers);
    VmapResult result = function.vmap(info, first, rows);
    for (size_t i = 0; i < result.outputs.size(); ++i)
      result.outputs[i] = in_rows(result.outputs[i], result.out_dims[i], info.batch_size);
    return {std::move(result.outputs), {}};
  };
  return {vjp_unchecked(call, inputs).pullback(cotangents), first};
}

// (inputs..., cotangents...) -> gradients of the inputs, as a custom function.
CustomFunctionPtr pullback_of(const CustomFunctionPtr& function, size_t input_count) {
  auto pullback = std::make_shared<CustomFunction>();
  pullback->name = function->name;
  pullback->double_vjp = true;
  pullback->is_pullback = true;
  pullback->apply = [function, input_count](const Tensors& arguments) {
    auto middle = arguments.begin() + static_cast<int64_t>(input_count);
    auto call = [&](const Tensors& inputs) -> Output {
      std::optional<base::GeneratorsBack> again;
      if (function->numbers) again.emplace(*function->numbers);
      Tensors outputs = function->apply(inputs);
      TORCH_CHECK(!function->is_pullback || any_requires_grad(outputs), "The backward of ", function->name,
                  " is not made of differentiable operators, so it cannot be differentiated again, which the "
                  "double-vjp method and second derivatives need.");
      return {std::move(outputs), {}};
    };
    return vjp_below_layers(call, Tensors(arguments.begin(), middle))
        .pullback(Tensors(middle, arguments.end()));
  };
  if (function->vmap) {
    pullback->vmap = [function, input_count](const VmapInfo& info, const VmapDims& dims,
                                             const Tensors& arguments) {
      return pull_back_rows(*function, input_count, info, dims, arguments);
    };
  }
  return pullback;
}

// The node of a custom function on a reverse layer. It runs when that layer is gone, on the layers around it.
class PullbackNode final : public base::HoldingNode {
 public:
  PullbackNode(CustomFunctionPtr function, Tensors inputs, Tensors outputs)
      : function_(std::move(function)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  std::string name() const override { return function_->name + "Backward"; }

  void release_variables() override {
    released_ = true;
    inputs_.clear();
    outputs_.clear();
  }
  void release_resources() override {
    release_variables();
    HoldingNode::release_resources();
  }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& cotangents) override {
    TORCH_CHECK(!released_, "Trying to backward through ", function_->name,
                " a second time after its graph was freed.");
    for (size_t i = 0; i < cotangents.size(); ++i) {
      if (!cotangents[i].defined()) cotangents[i] = at::zeros_like(outputs_[i]);
    }
    return call_custom(pullback_of(function_, inputs_.size()), joined(inputs_, cotangents));
  }

  const CustomFunctionPtr function_;
  Tensors inputs_;   // as below the layer
  Tensors outputs_;  // for the shape of a missing cotangent
  bool released_ = false;
};

}  // namespace

void set_pullback(const CustomFunctionPtr& function, Tensors inputs, Tensors shapes, const Tensors& history,
                  Tensors& outputs) {
  auto node = base::make_node<PullbackNode>(function, std::move(inputs), std::move(shapes));
  node->set_next_edges(torch::autograd::collect_next_edges(history));
  for (at::Tensor& output : outputs) {
    if (is_differentiable(output)) {
      torch::autograd::set_history(output, node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());  // keeps its number
    }
  }
}

Tensors double_vjp(const CustomFunctionPtr& function, const Tensors& inputs, const Tensors& outputs,
                   const Tensors& tangents) {
  Tensors arguments = inputs;
  for (const at::Tensor& output : outputs) arguments.push_back(at::zeros_like(output));
  auto transposed = pullback_of(pullback_of(function, inputs.size()), arguments.size());
  Tensors both = call_custom(transposed, joined(arguments, tangents));
  return Tensors(both.begin() + static_cast<int64_t>(inputs.size()), both.end());
}

}  // namespace overdrive::forward_ad::detail
