// Two numbers that stand for all bits of a model, so that trainings in different processes can be compared. A
// pure function of the model.
#pragma once

#include "examples/trainers/trainer.h"

namespace overdrive::trainers {

struct Digest {
  std::string parameters, gradients;  // 16 hexadecimal digits; gradients of zeros where there are none
};

Digest digest_of(const Trainer& trainer);

}  // namespace overdrive::trainers
