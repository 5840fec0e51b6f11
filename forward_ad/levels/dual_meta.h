// The autograd data of a dual: answers LibTorch's questions about level 0 from the
// registry's ForwardGrad, so that a tangent is there exactly as long as its level is
// open. Owned by the dual's tensor; its end is the ForwardGrad's clear(). As thread-safe
// as the data it extends. Leaves results of operators to LibTorch's own slot.
#pragma once

#include "forward_ad/levels/forward_grad.h"

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>

namespace overdrive::forward_ad {

class DualMeta final : public torch::autograd::AutogradMeta {
 public:
  DualMeta(uint64_t level, std::shared_ptr<ForwardGrad> tangents);
  ~DualMeta() override;

  // Operators ask on the thread that runs them: one that has levels of its own, but did
  // not enter this one, would mix the two, so it gets an error.
  const at::Tensor& fw_grad(uint64_t host_level, const at::TensorBase& self) const override;
  void set_fw_grad(const at::TensorBase& tangent, const at::TensorBase& self, uint64_t host_level,
                   bool is_inplace_op) override;

  uint64_t level() const { return level_; }
  const ForwardGrad& tangents() const { return *tangents_; }

  // Null when the tensor is not a dual made by make_dual.
  static DualMeta* of(const at::Tensor& tensor);

 private:
  const uint64_t level_;
  const std::shared_ptr<ForwardGrad> tangents_;
};

}  // namespace overdrive::forward_ad
