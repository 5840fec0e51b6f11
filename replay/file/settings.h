// The process that a file is read in: its settings that decide bits, as a text, and its LibTorch. A step file
// has those of its writer. Any thread.
#pragma once

#include <string>

namespace overdrive::replay {

std::string settings_now();

// The version of the LibTorch that runs, "2.13.0".
std::string running_torch();
// Throws where it is of another minor version than this library was built for.
void check_torch();

}  // namespace overdrive::replay
