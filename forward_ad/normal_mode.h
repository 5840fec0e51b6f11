// Takes the calling thread out of inference mode for as long as a driver runs: nothing has a
// derivative there, and all would come out as zeros. Does nothing elsewhere. One thread's;
// the results are ordinary tensors without a graph. Private.
#pragma once

#include "forward_ad/driver_functions.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace overdrive::forward_ad {

class NormalMode {
 public:
  NormalMode() : was_inference_(c10::InferenceMode::is_enabled()) {
    if (!was_inference_) return;
    normal_.emplace(false);
    nothing_recorded_.emplace();  // as in inference mode
  }

  // What was made in inference mode is copied: it can be part of nothing else.
  Tensors usable(const Tensors& tensors) const {
    if (!was_inference_) return tensors;
    Tensors copies;
    for (const at::Tensor& tensor : tensors)
      copies.push_back(tensor.defined() && tensor.is_inference() ? tensor.clone() : tensor);
    return copies;
  }

 private:
  const bool was_inference_;
  std::optional<c10::InferenceMode> normal_;
  std::optional<c10::NoGradGuard> nothing_recorded_;
};

}  // namespace overdrive::forward_ad
