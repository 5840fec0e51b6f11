#include "hooks/scope/python_scopes.h"

#include "engine/base/torch_types.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <utility>

namespace overdrive::hooks {
namespace {
class SaveOnCpu final : public SavedTensorHooks {
 public:
  explicit SaveOnCpu(bool pin_memory) : pin_memory_(pin_memory) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo&) override {
    const bool pin = pin_memory_ && at::accelerator::isAccelerator(tensor.device().type());
    at::Tensor on_cpu = at::empty_strided(tensor.sizes(), tensor.strides(),
                                          tensor.options().device(at::kCPU).pinned_memory(pin));
    on_cpu.copy_(tensor, /*non_blocking=*/pin);
    return Packed::of(std::move(on_cpu), tensor.device());
  }
  at::Tensor unpack(Packed& packed, const UnpackInfo&) override {
    return packed.tensors[0].to(std::any_cast<c10::Device>(packed.state), /*non_blocking=*/pin_memory_);
  }
  bool wants(const at::Tensor& tensor, const SaveInfo&) override { return !tensor.is_cpu(); }
  bool lossless() const override { return true; }
  std::string name() const override { return "save_on_cpu"; }

 private:
  const bool pin_memory_;
};

class CopyOnSave final : public SavedTensorHooks {
 public:
  Packed pack(const at::Tensor& tensor, const SaveInfo&) override { return Packed::of(tensor.clone()); }
  at::Tensor unpack(Packed& packed, const UnpackInfo&) override { return packed.tensors[0]; }
  bool lossless() const override { return true; }
  std::string name() const override { return "allow_mutation_on_saved_tensors"; }
};

}  // namespace

ScopedHooks save_on_cpu(bool pin_memory) { return ScopedHooks(std::make_shared<SaveOnCpu>(pin_memory)); }

ScopedHooks allow_mutation_on_saved_tensors() {
  return ScopedHooks(std::make_shared<CopyOnSave>(), {.skip_parameters = false, .check_in_place = false});
}

}  // namespace overdrive::hooks
