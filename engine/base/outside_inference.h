// A scope outside inference mode, without grad mode: tensors made inside are ordinary tensors with a version
// counter, and nothing is recorded, as in inference mode. Does nothing on a thread outside inference mode. On
// the stack of one thread.
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
