// Value and tangent of what forward over reverse mode spends most of its passes over memory
// on, with fewer of them than LibTorch's formulas: sums are made in place.
#include "forward_ad/rule_support.h"

#include <ATen/core/Scalar.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/tanh_backward_ops.h>

namespace overdrive::forward_ad::rules {

namespace {

using at::Tensor;
using c10::DispatchKeySet;

// Two tensors of real numbers with tangents, all of one shape, that nothing records.
struct Pair {
  Tensor of_a, of_b;

  static std::optional<Pair> of(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
    if (!can_use_plain_rule(keys, a, b) || a.scalar_type() != b.scalar_type() || !a.is_floating_point())
      return {};
    Pair pair{a._fw_grad(0), b._fw_grad(0)};
    auto fits = [&](const Tensor& tangent) { return is_plain(tangent) && tangent.sizes() == a.sizes(); };
    if (a.sizes() != b.sizes() || !fits(pair.of_a) || !fits(pair.of_b)) return {};
    return pair;
  }
};

Tensor mul(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  auto pair = Pair::of(keys, a, b);
  if (!pair) return at::_ops::mul_Tensor::redispatch(keys & kBelow, a, b);
  Tensor value = value_of<at::_ops::mul_Tensor>(keys, a, b);
  c10::AutoFwGradMode no_tangents(false);
  return with_tangent(value, at::mul(pair->of_a, b).addcmul_(a, pair->of_b));
}

Tensor tanh_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& output) {
  auto pair = Pair::of(keys, grad, output);
  if (!pair) return at::_ops::tanh_backward::redispatch(keys & kBelow, grad, output);
  Tensor value = value_of<at::_ops::tanh_backward>(keys, grad, output);
  c10::AutoFwGradMode no_tangents(false);
  return with_tangent(value,
                      at::tanh_backward(pair->of_a, output).addcmul_(at::mul(grad, output), pair->of_b, -2));
}

Tensor sigmoid_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& output) {
  auto pair = Pair::of(keys, grad, output);
  if (!pair) return at::_ops::sigmoid_backward::redispatch(keys & kBelow, grad, output);
  Tensor value = value_of<at::_ops::sigmoid_backward>(keys, grad, output);
  c10::AutoFwGradMode no_tangents(false);
  Tensor bent = at::mul(grad, pair->of_b);
  return with_tangent(value, at::sigmoid_backward(pair->of_a, output).add_(bent).addcmul_(bent, output, -2));
}

// x and x^2, of which the first is what the backward of the second makes.
Tensor power(DispatchKeySet keys, const Tensor& x, const c10::Scalar& exponent) {
  const bool is_square = exponent.equal(2), has_rule = is_square || exponent.equal(1);
  auto pair = has_rule ? Pair::of(keys, x, x) : std::nullopt;
  if (!pair) return at::_ops::pow_Tensor_Scalar::redispatch(keys & kBelow, x, exponent);
  Tensor value = value_of<at::_ops::pow_Tensor_Scalar>(keys, x, exponent);
  c10::AutoFwGradMode no_tangents(false);
  return with_tangent(value, is_square ? at::mul(x, pair->of_a).mul_(2) : pair->of_a.clone());
}

}  // namespace

void add_elementwise_rules(torch::Library& table) {
  table.impl("mul.Tensor", TORCH_FN(mul));
  table.impl("tanh_backward", TORCH_FN(tanh_backward));
  table.impl("sigmoid_backward", TORCH_FN(sigmoid_backward));
  table.impl("pow.Tensor_Scalar", TORCH_FN(power));
}

}  // namespace overdrive::forward_ad::rules
