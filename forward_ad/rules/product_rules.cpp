// Value and tangent of a product by one kernel each: a product by a tensor without a tangent is computed twice,
// not three times as by LibTorch's formula.
#include "forward_ad/layers/dual_layout.h"
#include "forward_ad/rules/rule_support.h"

#include <optional>
#include <vector>

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

// A product reads its whole matrix, and rearranges it for that: with few rows, a sixth of the time and more. So
// value and tangent come from one product of all rows where that saves more than it costs to bring them
// together. It leaves them side by side, and operators with a rule for that keep them so (dual_layout.h): the
// next product then joins them at no cost.
bool is_large(const Tensor& matrix) { return matrix.dim() == 2 && matrix.numel() >= int64_t{1} << 16; }

bool pays_to_join(DispatchKeySet keys, const Tensor& input, const Tensor& tangent, const Tensor& matrix) {
  if (!is_large(matrix) || !input.device().is_cpu() || input.dim() < 2) return false;
  constexpr int64_t kFew = 4, kMany = 128;
  const int64_t inner = matrix.size(0), rows = input.numel() / inner;
  return rows >= kFew && rows <= kMany && input.size(-1) == inner &&
         input.scalar_type() == matrix.scalar_type() && !is_recorded(tangent) &&
         !keys.has_any(c10::autocast_dispatch_keyset) &&
         Halves::can_have({rows, matrix.size(1)}, input.scalar_type());
}

Halves joined_product(const Tensor& input, const Tensor& tangent, const Tensor& matrix) {
  const int64_t inner = matrix.size(0), outer = matrix.size(1);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = outer;
  Tensor rows = are_side_by_side(input, tangent)
                    ? rows_of_both(input, tangent, inner)
                    : at::cat({input.reshape({-1, inner}), tangent.reshape({-1, inner})});
  Halves products = Halves::empty(sizes, input.scalar_type());
  Tensor both = rows_of_both(products.first, products.second, outer);
  at::mm_out(both, rows, matrix);
  return products;
}

// The addend of a product: none, a tensor, or a tensor with a tangent.
struct Added {
  Tensor value, tangent;
  c10::Scalar factor = 1;

  // One row, as it mostly is.
  bool fits(const Tensor& input, const Tensor& matrix) const {
    return !value.defined() || (value.scalar_type() == input.scalar_type() && value.dim() == 1 &&
                                matrix.dim() == 2 && value.size(0) == matrix.size(1));
  }
};

std::optional<Tensor> try_joined(DispatchKeySet keys, const Factors& factors, const Tensor& input,
                                 const Tensor& matrix, const Added& added) {
  const Tensor& tangent = factors.a;
  if (!factors.b.is_same(matrix) || !added.fits(input, matrix) || !pays_to_join(keys, input, tangent, matrix))
    return {};
  c10::AutoFwGradMode no_tangents(false);
  Halves result = joined_product(input, tangent, matrix);
  if (added.value.defined() && !added.factor.equal(0)) result.first.add_(added.value, added.factor);
  if (added.tangent.defined()) result.second.add_(added.tangent, added.factor);
  return with_tangent(result.first, result.second);
}

Tensor matrix_product(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  auto factors = Factors::with_one_tangent(keys, a, b);
  if (!factors) return at::_ops::mm::redispatch(keys & kBelow, a, b);
  if (auto joined = try_joined(keys, *factors, a, b, {})) return *joined;
  return with_tangent(value_of<at::_ops::mm>(keys, a, b),
                      at::_ops::mm::redispatch(keys & kBelow, factors->a, factors->b));
}

template <typename Op>
Tensor product(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  auto factors = Factors::with_one_tangent(keys, a, b);
  if (!factors) return Op::redispatch(keys & kBelow, a, b);
  return with_tangent(value_of<Op>(keys, a, b), Op::redispatch(keys & kBelow, factors->a, factors->b));
}

// Whether an addend can be used as it is.
bool is_plain_or_absent(const Tensor& tensor) { return !tensor.defined() || is_plain(tensor); }

Tensor linear(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
              const std::optional<Tensor>& bias) {
  Added added{bias.value_or(Tensor()), {}};
  auto factors =
      is_plain_or_absent(added.value) ? Factors::with_one_tangent(keys, input, weight) : std::nullopt;
  if (factors && added.value.defined() && is_recorded(added.value)) factors.reset();
  if (!factors) return at::_ops::linear::redispatch(keys & kBelow, input, weight, bias);
  if (has_tangent(added.value)) added.tangent = added.value._fw_grad(0);
  if (factors->b.is_same(weight) && is_large(weight)) {
    Factors transposed{factors->a, weight.t()};
    if (auto joined = try_joined(keys, transposed, input, transposed.b, added)) return *joined;
  }
  Tensor value = value_of<at::_ops::linear>(keys, input, weight, bias);
  std::optional<Tensor> tangent_of_bias;
  if (added.tangent.defined()) tangent_of_bias = added.tangent;
  return with_tangent(value,
                      at::_ops::linear::redispatch(keys & kBelow, factors->a, factors->b, tangent_of_bias));
}

Tensor addmm(DispatchKeySet keys, const Tensor& added, const Tensor& a, const Tensor& b,
             const c10::Scalar& beta, const c10::Scalar& alpha) {
  auto factors = is_plain(added) ? Factors::with_one_tangent(keys, a, b) : std::nullopt;
  if (!factors || is_recorded(added) || added._fw_grad(0).defined() || !alpha.equal(1)) {
    return at::_ops::addmm::redispatch(keys & kBelow, added, a, b, beta, alpha);
  }
  if (auto joined = try_joined(keys, *factors, a, b, {added, {}, beta})) return *joined;
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
