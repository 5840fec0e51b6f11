// The error of a replay that must not be taken back: a function that runs apart changed a tensor that the step
// uses.
#pragma once

#include <c10/util/Exception.h>

namespace overdrive::replay {

struct ChangedApart final : c10::Error {
  using c10::Error::Error;
};

}  // namespace overdrive::replay
