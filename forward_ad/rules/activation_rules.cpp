// Activations, norms of vectors and special functions whose derivatives LibTorch cannot
// differentiate forward, as their definitions, or as errors where it has none at all.
#include "forward_ad/rules/rule_support.h"

#include <ATen/core/Scalar.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/glu_jvp_ops.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mish_backward_ops.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/sinc_ops.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/MathConstants.h>

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

// Near zero by its power series: LibTorch's derivatives are those of a quotient, and zero at zero.
Tensor sinc(DispatchKeySet keys, const Tensor& x) {
  if (!any_derivative(x)) return at::_ops::sinc::redispatch(keys & kBelow, x);
  Tensor angle = x * c10::pi<double>, is_near = angle.abs() < 1.5;
  Tensor square = angle.masked_fill(is_near.logical_not(), 0).square(), series = at::ones_like(square);
  for (int k = 12; k > 0; --k) series = 1 - series * square / (2 * k * (2 * k + 1));
  Tensor far = angle.masked_fill(is_near, 1);
  return at::where(is_near, series, far.sin() / far);
}

// LibTorch calls these functions constant, and gives them a tangent of zero.
constexpr const char* kWithoutDerivative[] = {
    "special_airy_ai",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_spherical_bessel_j0",
};

void refuse_tangents(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const Tensor& x = stack->back().toTensor();
  TORCH_CHECK(!any_tangent(x), op.schema().name(),
              " has no derivative in LibTorch, which would take it for a constant.");
  op.redispatchBoxed(keys & kBelow, stack);
}

// LibTorch's formula gives the tangent of a number too many dimensions.
Tensor norm_of_all(DispatchKeySet keys, const Tensor& self, const c10::Scalar& p) {
  if (!any_tangent(self)) return at::_ops::norm_Scalar::redispatch(keys & kBelow, self, p);
  return at::linalg_vector_norm(self, p);
}

}  // namespace

void add_activation_rules(torch::Library& table) {
  table.impl("_softmax_backward_data", TORCH_FN(softmax_backward));
  table.impl("_log_softmax_backward_data", TORCH_FN(log_softmax_backward));
  table.impl("silu_backward", TORCH_FN(silu_backward));
  table.impl("mish_backward", TORCH_FN(mish_backward));
  table.impl("hardsigmoid_backward", TORCH_FN(hardsigmoid_backward));
  table.impl("sinc", TORCH_FN(sinc));
  for (const char* name : kWithoutDerivative)
    table.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_tangents>());
  table.impl("glu_jvp", TORCH_FN(glu_tangent));
  table.impl("norm.Scalar", TORCH_FN(norm_of_all));
}

}  // namespace overdrive::forward_ad::rules
