// Which calls belong to a recording: modes of the thread and of modules, watched values, signatures of inputs.
// A value; made in the first call that no recording fits, compared in each call, on the calling thread.
#pragma once

#include "replay/capture_options.h"
#include "replay/guard/input_signature.h"
#include "replay/record/environment.h"
#include "replay/recording/declared.h"

#include <vector>

namespace overdrive::replay {

class CallSignature {
 public:
  CallSignature(const std::vector<at::Tensor>& inputs, const CaptureOptions& options,
                const std::vector<WatchedValue>& watched);

  bool fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const;
  // Whether the two differ in their inputs alone.
  bool has_values_of(const CallSignature& other) const;

  const Environment& environment() const { return environment_; }
  const std::vector<InputSignature>& inputs() const { return inputs_; }

 private:
  const Environment environment_;
  const std::vector<InputSignature> inputs_;
  const ModuleModes modes_;
  const std::vector<WatchedValue> watched_;
};

}  // namespace overdrive::replay
