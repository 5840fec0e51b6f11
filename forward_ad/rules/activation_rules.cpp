// Activations and their backward operators, which LibTorch cannot differentiate forward, as their definitions.
#include "forward_ad/rules/rule_support.h"

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

Tensor softmax_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& output, int64_t dim,
                        at::ScalarType input_dtype) {
  if (!any_tangent(grad, output)) {
    return at::_ops::_softmax_backward_data::redispatch(keys & kBelow, grad, output, dim, input_dtype);
  }
  Tensor weighted = grad * output;
  return (weighted - output * weighted.sum(dim, /*keepdim=*/true)).to(input_dtype);
}

Tensor log_softmax_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& output, int64_t dim,
                            at::ScalarType input_dtype) {
  if (!any_tangent(grad, output)) {
    return at::_ops::_log_softmax_backward_data::redispatch(keys & kBelow, grad, output, dim, input_dtype);
  }
  return (grad - output.exp() * grad.sum(dim, /*keepdim=*/true)).to(input_dtype);
}

Tensor silu_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& self) {
  if (!any_tangent(grad, self)) return at::_ops::silu_backward::redispatch(keys & kBelow, grad, self);
  Tensor sigmoid = at::sigmoid(self);
  return grad * sigmoid * (1 + self * (1 - sigmoid));
}

Tensor mish_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& self) {
  if (!any_tangent(grad, self)) return at::_ops::mish_backward::redispatch(keys & kBelow, grad, self);
  Tensor gate = at::tanh(at::softplus(self));
  return grad * (gate + self * at::sigmoid(self) * (1 - gate * gate));
}

Tensor hardsigmoid_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& self) {
  if (!any_derivative(grad, self)) return at::_ops::hardsigmoid_backward::redispatch(keys & kBelow, grad, self);
  constexpr double kSixth = 1.0F / 6;  // as the kernel has it for every type
  return at::where((self > -3).logical_and(self < 3), grad * kSixth, at::zeros_like(grad));
}

Tensor glu_tangent(DispatchKeySet keys, const Tensor& glu, const Tensor& x, const Tensor& dx, int64_t dim) {
  if (!any_derivative(glu, x, dx)) return at::_ops::glu_jvp::redispatch(keys & kBelow, glu, x, dx, dim);
  const int64_t half = x.size(dim) / 2;
  Tensor gate = at::sigmoid(x.narrow(dim, half, half));
  return dx.narrow(dim, 0, half) * gate + glu * (1 - gate) * dx.narrow(dim, half, half);
}

}  // namespace

void add_activation_rules(torch::Library& table) {
  table.impl("_softmax_backward_data", TORCH_FN(softmax_backward));
  table.impl("_log_softmax_backward_data", TORCH_FN(log_softmax_backward));
  table.impl("silu_backward", TORCH_FN(silu_backward));
  table.impl("mish_backward", TORCH_FN(mish_backward));
  table.impl("hardsigmoid_backward", TORCH_FN(hardsigmoid_backward));
  table.impl("glu_jvp", TORCH_FN(glu_tangent));
}

}  // namespace overdrive::forward_ad::rules
