// The autograd data of a dual. It answers LibTorch's questions about level 0 from a ForwardGrad, so that a
// tangent is there exactly as long as its level is open. Owned by the dual's tensor; its end is the
// ForwardGrad's clear(). As thread-safe as the data it extends. Leaves results of operators to LibTorch's own
// slot.
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

  // Operators ask on the thread that runs them. A thread with levels of its own that did not enter this level
  // would mix the two, so it gets an error.
  const at::Tensor& fw_grad(uint64_t host_level, const at::TensorBase& self) const override;
  void set_fw_grad(const at::TensorBase& tangent, const at::TensorBase& self, uint64_t host_level,
                   bool is_inplace_op) override;

 private:
  const uint64_t level_;
  const std::shared_ptr<ForwardGrad> tangents_;
};

}  // namespace overdrive::forward_ad
