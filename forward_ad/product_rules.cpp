// Value and tangent of a product by one kernel each: a product by a tensor without a
// tangent is computed twice, not three times as by LibTorch's formula.
#include "forward_ad/rule_support.h"

#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>

#include <optional>

namespace overdrive::forward_ad::rules {

namespace {

using at::Tensor;
using c10::DispatchKeySet;

// Two factors, exactly one of which has a tangent.
struct Factors {
  Tensor a, b;  // the tangent in the place of the factor that has one

  static std::optional<Factors> with_one_tangent(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
    if (!can_use_plain_rule(keys, a, b)) return {};
    const Tensor &tangent_of_a = a._fw_grad(0), &tangent_of_b = b._fw_grad(0);
    if (tangent_of_a.defined() == tangent_of_b.defined()) return {};
    Factors factors{tangent_of_a.defined() ? tangent_of_a : a, tangent_of_b.defined() ? tangent_of_b : b};
    if (!is_plain(factors.a) || !is_plain(factors.b)) return {};
    return factors;
  }
};

// A matrix that lies transposed is rearranged by each product; where few rows meet a large
// one, that is a seventh of the time. So value and tangent come from one product of all rows
// then. It gains nothing where the matrix lies as it is read, and costs where it is small.
bool pays_to_join(const Tensor& rows, const Tensor& tangent, const Tensor& matrix) {
  constexpr int64_t kFew = 4, kMany = 128, kLarge = int64_t{1} << 18;
  return rows.device().is_cpu() && rows.dim() == 2 && matrix.dim() == 2 && rows.size(0) >= kFew &&
         rows.size(0) <= kMany && matrix.numel() >= kLarge && matrix.stride(0) == 1 &&
         matrix.stride(1) >= matrix.size(0) && !is_recorded(tangent);
}

Tensor joined_product(DispatchKeySet keys, const Tensor& rows, const Tensor& tangent, const Tensor& matrix) {
  const int64_t count = rows.size(0);
  Tensor value, slope;
  {
    c10::AutoFwGradMode no_tangents(false);
    Tensor both = at::_ops::mm::redispatch(keys & kBelow, at::cat({rows, tangent}), matrix);
    value = both.narrow(0, 0, count).clone();
    slope = both.narrow(0, count, count).clone();
  }
  return with_tangent(value, slope);
}

Tensor matrix_product(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  auto factors = Factors::with_one_tangent(keys, a, b);
  if (!factors) return at::_ops::mm::redispatch(keys & kBelow, a, b);
  if (factors->b.is_same(b) && pays_to_join(a, factors->a, b)) return joined_product(keys, a, factors->a, b);
  return with_tangent(value_of<at::_ops::mm>(keys, a, b),
                      at::_ops::mm::redispatch(keys & kBelow, factors->a, factors->b));
}

template <typename Op>
Tensor product(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  auto factors = Factors::with_one_tangent(keys, a, b);
  if (!factors) return Op::redispatch(keys & kBelow, a, b);
  return with_tangent(value_of<Op>(keys, a, b), Op::redispatch(keys & kBelow, factors->a, factors->b));
}

// The tangent of what is added to a product, if that can be used as it is.
bool is_plain_or_absent(const Tensor& tensor) { return !tensor.defined() || is_plain(tensor); }

Tensor linear(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
              const std::optional<Tensor>& bias) {
  Tensor added = bias.value_or(Tensor());
  auto factors = is_plain_or_absent(added) ? Factors::with_one_tangent(keys, input, weight) : std::nullopt;
  if (factors && added.defined() && is_recorded(added)) factors.reset();
  if (!factors) return at::_ops::linear::redispatch(keys & kBelow, input, weight, bias);
  Tensor value = value_of<at::_ops::linear>(keys, input, weight, bias);
  std::optional<Tensor> tangent_of_bias;
  if (added.defined() && added._fw_grad(0).defined()) tangent_of_bias = added._fw_grad(0);
  return with_tangent(value,
                      at::_ops::linear::redispatch(keys & kBelow, factors->a, factors->b, tangent_of_bias));
}

Tensor addmm(DispatchKeySet keys, const Tensor& added, const Tensor& a, const Tensor& b,
             const c10::Scalar& beta, const c10::Scalar& alpha) {
  auto factors = is_plain(added) ? Factors::with_one_tangent(keys, a, b) : std::nullopt;
  if (!factors || is_recorded(added) || added._fw_grad(0).defined() || !alpha.equal(1)) {
    return at::_ops::addmm::redispatch(keys & kBelow, added, a, b, beta, alpha);
  }
  Tensor value = value_of<at::_ops::addmm>(keys, added, a, b, beta, alpha);
  return with_tangent(value, at::_ops::mm::call(factors->a, factors->b));
}

}  // namespace

void add_product_rules(torch::Library& table) {
  table.impl("mm", TORCH_FN(matrix_product));
  table.impl("bmm", TORCH_FN(product<at::_ops::bmm>));
  table.impl("mv", TORCH_FN(product<at::_ops::mv>));
  table.impl("linear", TORCH_FN(linear));
  table.impl("addmm", TORCH_FN(addmm));
}

}  // namespace overdrive::forward_ad::rules
