// Operators that are linear in their first argument, a tensor or a list, with constants beside it: each
// derivative goes through the operator as the value does. And operators whose results have no derivative.
#include "forward_ad/taylor/jet.h"

#include <ATen/ATen.h>

#include <vector>

namespace overdrive::forward_ad::taylor {
namespace {
using torch::jit::Stack;

c10::IValue result_for(const c10::OperatorHandle& op, Stack arguments, c10::IValue first) {
  arguments[0] = std::move(first);
  op.callBoxed(&arguments);
  return std::move(arguments[0]);
}

// The result with the derivatives, each a tensor or each a list.
c10::IValue joined(const c10::IValue& value, const c10::IValue& first, const c10::IValue& second) {
  auto or_none = [](const c10::IValue& part) { return part.isNone() ? at::Tensor() : part.toTensor(); };
  if (value.isTensor()) return with_derivatives(value.toTensor(), {or_none(first), or_none(second)});
  c10::List<at::Tensor> results;
  const std::vector<at::Tensor> values = value.toTensorVector(), firsts = first.toTensorVector();
  const std::vector<at::Tensor> seconds = second.isNone() ? std::vector<at::Tensor>() : second.toTensorVector();
  for (size_t i = 0; i < values.size(); ++i)
    results.push_back(with_derivatives(values[i], {firsts[i], second.isNone() ? at::Tensor() : seconds[i]}));
  return results;
}

void linear_in_tensor(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const Derivatives* known = derivatives_of(torch::jit::peek(*stack, 0, count).toTensor());
  if (known == nullptr) give_up("an index has derivatives");
  const Derivatives of_x = *known;
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const InsideRule inside;
  op.callBoxed(stack);
  c10::IValue second;
  if (of_x.second.defined()) second = result_for(op, arguments, of_x.second);
  stack->back() = joined(stack->back(), result_for(op, arguments, of_x.first), second);
}

void linear_in_list(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const std::vector<at::Tensor> values = torch::jit::peek(*stack, 0, count).toTensorVector();
  std::vector<Derivatives> parts;
  bool any_second = false;
  for (const at::Tensor& value : values) {
    const Derivatives* known = derivatives_of(value);
    parts.push_back(known != nullptr ? *known : Derivatives());
    any_second = any_second || parts.back().second.defined();
  }
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const InsideRule inside;
  auto derivative = [&](at::Tensor Derivatives::*which) {
    c10::List<at::Tensor> list;
    for (size_t i = 0; i < values.size(); ++i) {
      const at::Tensor& part = parts[i].*which;
      list.push_back(part.defined() ? part : at::zeros_like(values[i]));
    }
    return result_for(op, arguments, list);
  };
  op.callBoxed(stack);
  c10::IValue second;
  if (any_second) second = derivative(&Derivatives::second);
  stack->back() = joined(stack->back(), derivative(&Derivatives::first), second);
}

// LibTorch gives some of these results a tangent of zeros.
void without_derivative(const c10::OperatorHandle& op, Stack* stack) {
  const InsideRule inside;
  op.callBoxed(stack);
}

constexpr const char* kLinear[] = {"_reshape_alias",
                                   "_to_copy",
                                   "_unsafe_view",
                                   "alias",
                                   "as_strided",
                                   "clone",

                                   "cumsum",
                                   "diagonal",
                                   "div.Scalar",
                                   "expand",
                                   "flip",
                                   "gather",
                                   "index.Tensor",
                                   "index_select",
                                   "mean",
                                   "mean.dim",
                                   "mul.Scalar",
                                   "neg",
                                   "permute",
                                   "repeat",
                                   "roll",
                                   "select.int",
                                   "slice.Tensor",
                                   "split.Tensor",
                                   "split_with_sizes",
                                   "squeeze",
                                   "squeeze.dim",
                                   "squeeze.dims",
                                   "sum",
                                   "sum.dim_IntList",
                                   "t",
                                   "transpose.int",
                                   "tril",
                                   "triu",
                                   "unbind.int",
                                   "unfold",
                                   "unsafe_split.Tensor",
                                   "unsqueeze",
                                   "view"};

constexpr const char* kOfLists[] = {"cat", "stack"};

// Constants, whatever they are made of.
constexpr const char* kWithoutDerivative[] = {
    "_local_scalar_dense", "argmax",    "argmin",     "bernoulli", "ceil",      "detach",    "empty_like",
    "eq.Scalar",           "eq.Tensor", "equal",      "floor",     "full_like", "ge.Scalar", "ge.Tensor",
    "gt.Scalar",           "gt.Tensor", "isinf",      "isnan",     "le.Scalar", "le.Tensor", "lt.Scalar",
    "lt.Tensor",           "ne.Scalar", "ne.Tensor",  "new_empty", "new_full",  "new_ones",  "new_zeros",
    "ones_like",           "rand_like", "randn_like", "round",     "sign",      "zeros_like"};

}  // namespace

void add_linear_jets(Rules& table) {
  for (const char* name : kLinear) table.impl_boxed(name, &linear_in_tensor);
  for (const char* name : kOfLists) table.impl_boxed(name, &linear_in_list);
  for (const char* name : kWithoutDerivative) table.impl_boxed(name, &without_derivative);
}

}  // namespace overdrive::forward_ad::taylor
