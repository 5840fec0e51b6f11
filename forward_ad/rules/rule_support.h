// Tools of the files of rules: their key, the question whether a tangent is about, and the way to LibTorch's
// own kernel. Functions without state; any thread. Private: only files of rules include it.
#pragma once

#include "engine/base/autograd_modes.h"
#include "engine/operators/keys.h"
#include "forward_ad/layers/dual_layout.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <optional>

namespace overdrive::forward_ad::rules {

inline constexpr c10::DispatchKey kKey = engine::keys::kForwardRules;
inline constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);

inline bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

using base::has_tangent;
inline bool has_tangent(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && has_tangent(*tensor);
}

// True when one of the tensors has a tangent: on the layer that it is wrapped for, on level 0 if it is plain.
template <typename... Tensors>
bool any_tangent(const Tensors&... tensors) {
  return c10::AutogradState::get_tls_state().get_fw_grad_mode() && (has_tangent(tensors) || ...);
}

// Dense tensors with nothing special: no wrapper, batch, lazy conjugate, zero tensor or subclass, whose tangent
// could lie elsewhere.
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

// True also where reverse mode records the operator: for operators whose formula of reverse mode is missing, or
// is wrong when it is differentiated again.
template <typename... Tensors>
bool any_derivative(const Tensors&... tensors) {
  return any_tangent(tensors...) || (is_recorded(tensors) || ...);
}

// For rules that compute value and tangent apart. They take plain tensors below all layers, because a layer
// wraps the value and would keep the tangent as its own. They do not act where reverse mode records the
// operator, because it would save tensors while tangents are out of sight, and a saved-tensor hook would lose
// them.
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

// True of a tensor whose results shall lie beside their tangents, too.
inline bool lies_beside_its_tangent(const at::Tensor& plain) {
  const at::Tensor& tangent = plain._fw_grad(0);
  return plain.device().is_cpu() && is_plain(tangent) && are_side_by_side(plain, tangent) &&
         Halves::can_have(plain.sizes(), plain.scalar_type());
}

// Each adds the rules of one file to LibTorch's table. The repairs are listed in repair.h.
void add_product_rules(torch::Library& table);
void add_elementwise_rules(torch::Library& table);
void add_activation_rules(torch::Library& table);
void add_side_by_side_rules(torch::Library& table);
void add_loss_rules(torch::Library& table);
void add_attention_rules(torch::Library& table);
void add_sampling_rules(torch::Library& table);

}  // namespace overdrive::forward_ad::rules
