// Value and tangent of a product by one kernel each: a product by a tensor without a
// tangent is computed twice, not three times as by LibTorch's formula.
#include "forward_ad/rule_support.h"

#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>
#include <c10/core/GradMode.h>

#include <optional>

namespace overdrive::forward_ad::rules {

namespace {

using at::Tensor;
using c10::DispatchKeySet;

// Dense tensors with nothing special about them: no wrapper, batch, lazy conjugate, zero
// tensor or subclass, whose tangent could be found elsewhere than where we look.
bool is_plain(const Tensor& tensor) {
  constexpr DispatchKeySet kPlain = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                    c10::autocast_dispatch_keyset | DispatchKeySet(c10::DispatchKey::Dense) |
                                    DispatchKeySet(DispatchKeySet::RAW, c10::full_backend_mask);
  return tensor.defined() && kPlain.has_all(tensor.key_set());
}

// Two factors, exactly one of which has a tangent. Below all layers only: a layer wraps the
// value, and would keep the tangent as its own.
//
// Not where reverse mode records the product: it would save the factors while tangents
// are out of sight, and a saved-tensor hook would lose them.
struct Factors {
  Tensor a, b;  // the tangent in the place of the factor that has one

  static std::optional<Factors> with_one_tangent(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
    if (keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) return {};
    if (!c10::AutogradState::get_tls_state().get_fw_grad_mode() || !is_plain(a) || !is_plain(b)) return {};
    if (c10::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad())) return {};
    const Tensor &tangent_of_a = a._fw_grad(0), &tangent_of_b = b._fw_grad(0);
    if (tangent_of_a.defined() == tangent_of_b.defined()) return {};
    Factors factors{tangent_of_a.defined() ? tangent_of_a : a, tangent_of_b.defined() ? tangent_of_b : b};
    if (!is_plain(factors.a) || !is_plain(factors.b)) return {};
    return factors;
  }
};

// The value as if nothing had a tangent.
template <typename Op, typename... Args>
Tensor value_of(DispatchKeySet keys, const Args&... args) {
  c10::AutoFwGradMode disabled(false);
  return Op::redispatch(keys & kBelow, args...);
}

Tensor with_tangent(Tensor value, const Tensor& tangent) {
  value._set_fw_grad(tangent, 0, /*is_inplace_op=*/false);
  return value;
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
  if (factors && added.defined() && c10::GradMode::is_enabled() && added.requires_grad()) factors.reset();
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
  bool recorded = c10::GradMode::is_enabled() && added.requires_grad();
  if (!factors || recorded || added._fw_grad(0).defined() || !alpha.equal(1)) {
    return at::_ops::addmm::redispatch(keys & kBelow, added, a, b, beta, alpha);
  }
  Tensor value = value_of<at::_ops::addmm>(keys, added, a, b, beta, alpha);
  return with_tangent(value, at::_ops::mm::call(factors->a, factors->b));
}

}  // namespace

void add_product_rules(torch::Library& table) {
  table.impl("mm", TORCH_FN(product<at::_ops::mm>));
  table.impl("bmm", TORCH_FN(product<at::_ops::bmm>));
  table.impl("mv", TORCH_FN(product<at::_ops::mv>));
  table.impl("linear", TORCH_FN(linear));
  table.impl("addmm", TORCH_FN(addmm));
}

}  // namespace overdrive::forward_ad::rules
