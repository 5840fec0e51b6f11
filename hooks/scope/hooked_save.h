// A tensor that an operator of LibTorch saved inside a scope of hooks: the link between LibTorch's
// SavedVariable and a hook. Made by hook_stack or SavedTensor, owned by the saved variable. Packs once, on the
// operator's thread; unpacks any number of times, also on several threads. Decides whether a tensor is packed,
// shared, or refused because it was changed. Leaves the packed form to the hook.
#pragma once

#include "engine/base/live_saved_hooks.h"
#include "engine/host/version_check.h"
#include "hooks/interface/tensor_kinds.h"
#include "hooks/memory/pack_unit.h"
#include "hooks/scope/hook_scope.h"

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <utility>

namespace overdrive::hooks {

class HookedSave final : public torch::autograd::SavedVariableHooks {
 public:
  explicit HookedSave(std::shared_ptr<HookScope> scope) : scope_(std::move(scope)) {}

  void call_pack_hook(const at::Tensor& tensor) override;
  // For the node that runs now, if one does.
  at::Tensor call_unpack_hook() override;
  at::Tensor unpack_for(base::Node* node);

 private:
  // A tensor that shares nothing and was packed when it was saved needs no unit, and so no lock.
  struct Plain {
    Plain(HooksPtr hooks, const at::Tensor& source, const Geometry& geometry,
          engine::host::VersionCheck version, const SaveInfo& info)
        : memory(std::move(hooks), source, geometry, std::move(version), info),
          packed(memory.pack(source, info)) {}
    const SavedMemory memory;
    Packed packed;
  };

  void pack(const at::Tensor& tensor, engine::host::VersionCheck version, const Geometry& place,
            const PackUnit::Timing& timing, const SaveInfo& info);
  void make_new(const at::Tensor& tensor, engine::host::VersionCheck version, const Geometry& place,
                const PackUnit::Timing& timing, const SaveInfo& info);
  // The packed memory, or null.
  const SavedMemory* memory() const { return plain_ ? &plain_->memory : unit_ ? &unit_->memory() : nullptr; }
  const engine::host::VersionCheck& version() const {
    const SavedMemory* packed = memory();
    return packed != nullptr ? packed->version() : version_;
  }
  [[noreturn]] void refuse_changed() const;
  void check_filled(const at::Tensor& unpacked, const base::Node& node) const;

  const base::LiveSavedHooks alive_;
  std::shared_ptr<HookScope> scope_;  // until packed
  // One of three: a tensor that is not packed, or the packed memory in one of two forms.
  at::Tensor kept_;
  engine::host::VersionCheck version_;
  std::optional<Plain> plain_;
  std::shared_ptr<PackUnit> unit_;
  std::unique_ptr<const Geometry> part_;  // of that memory; null for all of it
  // The storage of a tensor that its operator may fill only after it was packed. Else null.
  c10::weak_intrusive_ptr<c10::StorageImpl> perhaps_unfilled_{c10::intrusive_ptr<c10::StorageImpl>()};
  bool check_in_place_ = true;
  uint32_t output_nr_ = 0;
  // Weak: the node of an output would own itself.
  base::WeakNodePtr producer_{base::NodePtr()};
};

}  // namespace overdrive::hooks
