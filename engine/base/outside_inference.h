// Takes the calling thread out of inference mode while it lives, without recording anything that it would not
// have recorded there: what is made meanwhile is an ordinary tensor, with a version counter and derivatives.
// Does nothing elsewhere. One thread's, on its stack.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace overdrive::base {

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

}  // namespace overdrive::base
