// LibTorch's SavedVariable and our SavedTensor under one interface, so that one can be held against the other.
#pragma once

#include "test/hooks/hooks_fixture.h"

#include <torch/csrc/autograd/saved_variable.h>

namespace overdrive::hooks {

using test::NodePtr;
using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;
namespace impl = torch::autograd::impl;

// Keeps the tensor; says in which grad mode it was asked.
struct KeepingHook : SavedVariableHooks {
  void call_pack_hook(const Tensor& tensor) override {
    kept = tensor.detach();
    packed_with_grad = c10::GradMode::is_enabled();
  }
  Tensor call_unpack_hook() override { return kept; }
  Tensor kept;
  static inline bool packed_with_grad = true;
};
struct WritingHook : KeepingHook {
  void call_pack_hook(const Tensor& tensor) override { tensor.detach().add_(1); }
};

struct Stock {
  static constexpr bool kOurs = false;
  SavedVariable saved;
  SavedAs as;
  explicit Stock(const std::optional<Tensor>& tensor = {}, SavedAs how = SavedAs::kInput)
      : saved(tensor, how != SavedAs::kInput, how == SavedAs::kInPlaceOnView), as(how) {}
  // LibTorch's own nodes name themselves for outputs only.
  Tensor unpack(const NodePtr& owner) const { return saved.unpack(as == SavedAs::kInput ? nullptr : owner); }
  void register_hooks(std::unique_ptr<SavedVariableHooks> hooks) { saved.register_hooks(std::move(hooks)); }
  void release() { saved.reset_data(); }
};

struct Ours {
  static constexpr bool kOurs = true;
  SavedTensor saved;
  explicit Ours(const std::optional<Tensor>& tensor = {}, SavedAs how = SavedAs::kInput) : saved(tensor, how) {}
  Tensor unpack(const NodePtr& owner) const { return owner ? saved.unpack(*owner) : saved.unpack(); }
  void register_hooks(std::unique_ptr<SavedVariableHooks> hooks) { saved.register_hooks(std::move(hooks)); }
  void release() { saved.release(); }
};

}  // namespace overdrive::hooks
