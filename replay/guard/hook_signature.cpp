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

HookLooks HookLooks::of(const c10::TensorImpl& leaf) {
  HookLooks looks;
  const auto* meta = static_cast<torch::autograd::AutogradMeta*>(leaf.autograd_meta());
  if (!meta) return looks;
  add_addresses(looks.addresses, meta->hooks_);
  if (const auto& list = meta->cpp_hooks_list_) {
    looks.list = list.get();
    looks.listed = list->size();
    looks.removed = std::count_if(list->begin(), list->end(), [](const auto& hook) { return !hook; });
  }
  looks.addresses += reinterpret_cast<uintptr_t>(meta->post_acc_grad_hooks_.get());
  if (const auto accumulator = meta->grad_accumulator_.lock()) {
    add_addresses(looks.addresses, accumulator->pre_hooks());
    add_addresses(looks.addresses, accumulator->post_hooks());
  }
  return looks;
}

}  // namespace overdrive::replay
