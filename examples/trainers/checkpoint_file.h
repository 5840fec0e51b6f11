// A training on disk: parameters, optimizers, random state and the steps done, in one file that appears
// complete or not at all. Called by one thread. Decides no file names.
#pragma once

#include "examples/trainers/trainer.h"

#include <string>

namespace overdrive::trainers {

// Throws c10::Error naming the file when it cannot be written; an older file of that name is kept then.
void save_checkpoint(const std::string& path, const TrainerInfo& info, const Trainer& trainer,
                     int64_t steps_done);

// Gives the steps done. Throws c10::Error when the file is missing, damaged or of another model.
int64_t load_checkpoint(const std::string& path, const TrainerInfo& info, Trainer& trainer);

// Two numbers that stand for all bits of a model, so that trainings in different processes can be compared.
struct Digest {
  std::string parameters, gradients;  // 16 hexadecimal digits; gradients of zeros where there are none
};

Digest digest_of(const Trainer& trainer);

}  // namespace overdrive::trainers
