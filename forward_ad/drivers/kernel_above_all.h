// The kernel that sees every operator of a thread before any other does (engine::keys::kAboveAll).
// functional_call() puts tensors in the place of others there, and the rules of a pass over jets come after
// that; one key has one such kernel. The body is in substitution.cpp. Any thread. Private.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>

namespace overdrive::forward_ad::detail {

// Runs the operator and returns true, or leaves it alone. Filled by taylor/ with its first pass.
using OperatorRules = bool (*)(const c10::OperatorHandle&, torch::jit::Stack*);
inline constinit std::atomic<OperatorRules> operator_rules_of_pass{nullptr};

// For a thread that is about to include the key.
void register_kernel_above_all();

}  // namespace overdrive::forward_ad::detail
