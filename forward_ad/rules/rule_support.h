// What the files of rules share: their key, whether a tangent is about, and the way to
// LibTorch's own kernel. Private: a rules file includes it, and nobody else.
#pragma once

#include "engine/base/tangent.h"
#include "forward_ad/rules/halves.h"

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <optional>

namespace overdrive::forward_ad::rules {

inline constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
inline constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);

inline bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

using base::has_tangent;
inline bool has_tangent(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && has_tangent(*tensor);
}

// True when one of the tensors has a tangent, on the layer that it is wrapped for or, if it
// is plain, on level 0.
template <typename... Tensors>
bool any_tangent(const Tensors&... tensors) {
  return c10::AutogradState::get_tls_state().get_fw_grad_mode() && (has_tangent(tensors) || ...);
}

// Dense tensors with nothing special about them: no wrapper, batch, lazy conjugate, zero
// tensor or subclass, whose tangent could be found elsewhere than where we look.
inline bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kPlain = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                         c10::autocast_dispatch_keyset |
                                         c10::DispatchKeySet(c10::DispatchKey::Dense) |
                                         c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask);
  return tensor.defined() && kPlain.has_all(tensor.key_set());
}

inline bool is_recorded(const at::Tensor& tensor) {
  return c10::GradMode::is_enabled() && tensor.defined() && tensor.requires_grad();
}
inline bool is_recorded(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && is_recorded(*tensor);
}

// Also true where reverse mode records the operator: for those whose formula of reverse mode is
// missing, or is wrong when it is differentiated again.
template <typename... Tensors>
bool any_derivative(const Tensors&... tensors) {
  return any_tangent(tensors...) || (is_recorded(tensors) || ...);
}

// For rules that compute value and tangent apart: plain tensors, below all layers, since a
// layer wraps the value and would keep the tangent as its own. Not where reverse mode
// records the operator: it would save tensors while tangents are out of sight, and a
// saved-tensor hook would lose them.
inline bool can_use_plain_rule(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
  return !keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) &&
         c10::AutogradState::get_tls_state().get_fw_grad_mode() && is_plain(a) && is_plain(b) &&
         !is_recorded(a) && !is_recorded(b);
}

// The value as if nothing had a tangent.
template <typename Op, typename... Args>
at::Tensor value_of(c10::DispatchKeySet keys, const Args&... args) {
  c10::AutoFwGradMode disabled(false);
  return Op::redispatch(keys & kBelow, args...);
}

inline at::Tensor with_tangent(at::Tensor value, const at::Tensor& tangent) {
  value._set_fw_grad(tangent, 0, /*is_inplace_op=*/false);
  return value;
}

// Such a tensor's results are to lie beside their tangents, too.
inline bool lies_beside_its_tangent(const at::Tensor& plain) {
  const at::Tensor& tangent = plain._fw_grad(0);
  return plain.device().is_cpu() && is_plain(tangent) && are_side_by_side(plain, tangent) &&
         Halves::can_have(plain.sizes(), plain.scalar_type());
}

// Each adds the rules of one file to LibTorch's table.
void add_product_rules(torch::Library& table);
void add_elementwise_rules(torch::Library& table);
void add_activation_rules(torch::Library& table);
void add_in_place_rules(torch::Library& table);
void add_side_by_side_rules(torch::Library& table);
void add_loss_rules(torch::Library& table);
void add_norm_rules(torch::Library& table);
void add_attention_rules(torch::Library& table);
void add_distance_rules(torch::Library& table);
void add_linear_algebra_rules(torch::Library& table);
void add_reduction_rules(torch::Library& table);
void add_sampling_rules(torch::Library& table);

}  // namespace overdrive::forward_ad::rules
