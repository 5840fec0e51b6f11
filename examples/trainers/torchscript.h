// Your own model: a TorchScript module from a file as a trainer, so that the comparison can train it. A pure
// function of the file and the inputs' shapes.
#pragma once

#include "examples/trainers/trainer.h"

#include <string>
#include <vector>

namespace overdrive::trainers {

// What one input of the module looks like: its values are drawn anew for every step.
struct InputShape {
  std::vector<int64_t> sizes;
  int64_t below = 0;  // above 0: whole numbers from 0 to below - 1; else normally distributed numbers
};

// "8x3x32x32" or, for whole numbers below 65, "16x128:65". Throws c10::Error for anything else.
InputShape parse_input_shape(const std::string& text);

// Throws c10::Error when the file is no TorchScript module or has no parameters to train.
TrainerInfo torchscript(const std::string& path, const std::vector<InputShape>& inputs);

}  // namespace overdrive::trainers
