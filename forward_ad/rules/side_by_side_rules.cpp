// Activations of a value that lies side by side with its tangent, as a joined product leaves them
// (product_rules.cpp). LibTorch's own kernels and formulas write the results side by side again, so that the
// next product need not bring them together. Other tensors are left to LibTorch.
#include "forward_ad/layers/dual_layout.h"
#include "forward_ad/rules/rule_support.h"

#include <string_view>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

bool applies(DispatchKeySet keys, const Tensor& x) {
  return has_tangent(x) && can_use_plain_rule(keys, x, x) && x.is_floating_point() &&
         !is_recorded(x._fw_grad(0)) && lies_beside_its_tangent(x);
}

// `fill` gets the value and the tangent to be made, and the tangent of x.
template <typename Fill>
Tensor side_by_side(const Tensor& x, Fill fill) {
  const Tensor& tangent = x._fw_grad(0);
  c10::AutoFwGradMode no_tangents(false);
  Halves halves = Halves::empty(x.sizes(), x.scalar_type());
  fill(halves.first, halves.second, tangent);
  return with_tangent(halves.first, halves.second);
}

Tensor tanh(DispatchKeySet keys, const Tensor& x) {
  if (!applies(keys, x)) return at::_ops::tanh::redispatch(keys & kBelow, x);
  return side_by_side(x, [&](Tensor& value, Tensor& slope, const Tensor& tangent) {
    at::tanh_out(value, x);
    at::tanh_backward_out(slope, tangent, value);
  });
}

Tensor sigmoid(DispatchKeySet keys, const Tensor& x) {
  if (!applies(keys, x)) return at::_ops::sigmoid::redispatch(keys & kBelow, x);
  return side_by_side(x, [&](Tensor& value, Tensor& slope, const Tensor& tangent) {
    at::sigmoid_out(value, x);
    at::sigmoid_backward_out(slope, tangent, value);
  });
}

Tensor relu(DispatchKeySet keys, const Tensor& x) {
  if (!applies(keys, x)) return at::_ops::relu::redispatch(keys & kBelow, x);
  return side_by_side(x, [&](Tensor& value, Tensor& slope, const Tensor& tangent) {
    at::relu_out(value, x);
    at::threshold_backward_out(slope, tangent, value, 0);
  });
}

Tensor silu(DispatchKeySet keys, const Tensor& x) {
  // A repair: LibTorch's formula for complex numbers is wrong in the first order.
  if (x.is_complex() && any_derivative(x)) return x * at::sigmoid(x);
  if (!applies(keys, x)) return at::_ops::silu::redispatch(keys & kBelow, x);
  return side_by_side(x, [&](Tensor& value, Tensor& slope, const Tensor& tangent) {
    at::silu_out(value, x);
    at::silu_backward_out(slope, tangent, x);
  });
}

Tensor gelu(DispatchKeySet keys, const Tensor& x, std::string_view approximate) {
  if (!applies(keys, x)) return at::_ops::gelu::redispatch(keys & kBelow, x, approximate);
  return side_by_side(x, [&](Tensor& value, Tensor& slope, const Tensor& tangent) {
    at::gelu_out(value, x, approximate);
    at::gelu_backward_out(slope, tangent, x, approximate);
  });
}

}  // namespace

void add_side_by_side_rules(torch::Library& table) {
  table.impl("tanh", TORCH_FN(tanh));
  table.impl("sigmoid", TORCH_FN(sigmoid));
  table.impl("relu", TORCH_FN(relu));
  table.impl("silu", TORCH_FN(silu));
  table.impl("gelu", TORCH_FN(gelu));
}

}  // namespace overdrive::forward_ad::rules
