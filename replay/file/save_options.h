// What a captured step is written to a file with. Plain values. docs/guide/step_files.md is for users.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace overdrive {

struct SaveOptions {  // What save() takes.
  // Names of tensors that the step uses, before those that its modules and its optimizer give.
  std::vector<std::pair<std::string, at::Tensor>> names = {};
  // False: names and signatures of the tensors without their values, and no call that proves the file.
  bool values = true;
};

struct EagerCost {  // What eager calls of a function took.
  // Of the fastest one; 0: not known.
  double seconds = 0;
  // How many there were. One alone is the first, which is slower than those after it.
  uint64_t calls = 0;

  // Notes an eager call that took so many seconds.
  void add(double taken) {
    seconds = calls == 0 ? taken : std::min(seconds, taken);
    ++calls;
  }
};

}  // namespace overdrive
