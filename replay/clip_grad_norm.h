// Gradients with a norm of at most so much, as torch::nn::utils::clip_grad_norm_() makes them, with its bits.
// That one returns the norm as a number, which no captured step can replay; here it is a tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <limits>
#include <optional>
#include <vector>

namespace overdrive {

// Returns the norm of all gradients together before they are scaled; 0 when there is none.
inline at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                  double norm_type = 2) {
  const at::NoGradGuard no_grad;
  const bool is_largest = norm_type == std::numeric_limits<double>::infinity();
  std::vector<at::Tensor> gradients, norms;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    gradients.push_back(parameter.grad());
    norms.push_back(is_largest ? gradients.back().abs().max() : gradients.back().norm(norm_type));
  }
  if (norms.empty()) return at::full({}, 0.0);
  at::Tensor total = norms.front();
  if (norm_type == 0) {
    total = at::full({}, static_cast<double>(norms.size()));
  } else if (norms.size() > 1) {
    total = is_largest ? at::stack(norms).max() : at::stack(norms).norm(norm_type);
  }
  const at::Tensor factor = at::clamp(max_norm / (total + 1e-6), std::nullopt, 1.0);
  for (at::Tensor& gradient : gradients) gradient.mul_(factor);
  return total;
}

}  // namespace overdrive
