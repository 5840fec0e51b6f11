// A program as C++ source that needs LibTorch and Overdrive only and prints what it sees on either
// engine. For people: it shows gradients and hooks, not all that the interpreter compares.
#pragma once

#include <string>

#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/program.h"

namespace overdrive::fuzz {

std::string print_cpp(const Program& program);
// With what differed.
std::string print_cpp(const Program& program, const Difference& difference);

}  // namespace overdrive::fuzz
