// What the files of rules share: their key, whether a tangent is about, and the way to
// LibTorch's own kernel. Private: a rules file includes it, and nobody else.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/library.h>

#include <optional>

namespace overdrive::forward_ad::rules {

inline constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
inline constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);

inline bool has_tangent(const at::Tensor& tensor) { return tensor.defined() && tensor._fw_grad(0).defined(); }
inline bool has_tangent(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && has_tangent(*tensor);
}

// True when one of the tensors has a tangent, on the layer that it is wrapped for or, if it
// is plain, on level 0.
template <typename... Tensors>
bool any_tangent(const Tensors&... tensors) {
  return c10::AutogradState::get_tls_state().get_fw_grad_mode() && (has_tangent(tensors) || ...);
}

// Each adds the rules of one file to LibTorch's table.
void add_product_rules(torch::Library& table);
void add_activation_rules(torch::Library& table);
void add_loss_rules(torch::Library& table);
void add_norm_rules(torch::Library& table);
void add_attention_rules(torch::Library& table);

}  // namespace overdrive::forward_ad::rules
