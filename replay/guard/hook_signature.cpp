#include "replay/guard/outside_guard.h"

#include "engine/base/torch_types.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

template <typename Hooks>
void add_addresses(uint64_t& sum, const Hooks& hooks) {
  for (const auto& hook : hooks) sum = sum * 1099511628211u + reinterpret_cast<uintptr_t>(hook.get());
}

}  // namespace

HookSignature HookSignature::of(const c10::TensorImpl& leaf) {
  HookSignature signature;
  const auto* meta = static_cast<torch::autograd::AutogradMeta*>(leaf.autograd_meta());
  if (!meta) return signature;
  add_addresses(signature.addresses, meta->hooks_);
  if (const auto& list = meta->cpp_hooks_list_) {
    signature.list = list.get();
    signature.listed = list->size();
    signature.removed = std::count_if(list->begin(), list->end(), [](const auto& hook) { return !hook; });
  }
  signature.addresses += reinterpret_cast<uintptr_t>(meta->post_acc_grad_hooks_.get());
  if (const auto accumulator = meta->grad_accumulator_.lock()) {
    add_addresses(signature.addresses, accumulator->pre_hooks());
    add_addresses(signature.addresses, accumulator->post_hooks());
  }
  return signature;
}

}  // namespace overdrive::replay
