// Two small helpers for LibTorch's modes beside the backward: inference mode and forward mode. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace overdrive::base {

// A scope outside inference mode, without grad mode: tensors made inside are ordinary tensors with a version
// counter, and nothing is recorded, as in inference mode. Does nothing on a thread outside inference mode. On
// the stack of one thread.
class OutsideInference {
 public:
  OutsideInference() {
    if (!c10::InferenceMode::is_enabled()) return;
    off_.emplace(/*enabled=*/false);
    no_grad_.emplace();  // as in inference mode
  }

  // Whether the thread was in inference mode.
  bool has_left() const { return off_.has_value(); }

 private:
  std::optional<c10::InferenceMode> off_;
  std::optional<c10::NoGradGuard> no_grad_;
};

// Whether a tensor has a tangent of forward mode: on its functorch layer if it is wrapped, on level 0 if it is
// plain.
inline bool has_tangent(const at::Tensor& tensor) { return tensor.defined() && tensor._fw_grad(0).defined(); }

}  // namespace overdrive::base
