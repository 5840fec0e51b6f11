// A small program of ours that prints the names of its cases when it is called without arguments,
// and runs one when it is given its name.
#pragma once

#include "test/support/child_process.h"

#include <sstream>
#include <string>
#include <vector>

namespace overdrive::test {

inline std::vector<std::string> cases_of(const std::string& program) {
  std::istringstream lines(run_child({program}).out);
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  return names;
}

}  // namespace overdrive::test
