// A tensor that an op of LibTorch saved inside a scope of hooks: what stands between LibTorch's SavedVariable
// and a hook. Made by hook_stack or SavedTensor, owned by the saved variable. pack once, on the op's thread;
// unpack any number of times, also on several threads. Decides what is packed, what is shared, and whether
// the tensor was changed meanwhile; does not know what a hook makes of it.
#pragma once

#include "hooks/hook_scope.h"
#include "hooks/pack_unit.h"
#include "hooks/version_check.h"

#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace overdrive::hooks {

class HookedSave final : public torch::autograd::SavedVariableHooks {
 public:
  explicit HookedSave(std::shared_ptr<HookScope> scope) : scope_(std::move(scope)) {}

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;

 private:
  void note_producer(const at::Tensor& tensor, const SaveInfo& info);
  std::shared_ptr<PackUnit> own_unit(const at::Tensor& tensor, const Geometry& place, HookScope& scope,
                                     const SaveInfo& info);
  std::shared_ptr<PackUnit> shared_unit(const at::Tensor& tensor, HookScope& scope, SaveInfo& info);
  [[noreturn]] void refuse_changed() const;

  std::shared_ptr<HookScope> scope_;  // until packed
  at::Tensor kept_;                   // what is not packed
  std::shared_ptr<PackUnit> unit_;
  Geometry geometry_;
  VersionCheck version_;
  bool check_in_place_ = true;
  uint32_t output_nr_ = 0;
  bool output_of_owner_ = false;  // then the producer is the node that asks
  // Weak: the node of an in-place op on a view would own itself.
  base::WeakNodePtr producer_{base::NodePtr()};
};

}  // namespace overdrive::hooks
