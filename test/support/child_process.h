// Runs a small program in a process of its own and says how it ended and what it printed. One
// object a run; any thread. Leaves to the caller what the program is and what it should print.
#pragma once

#include "bench/support/program_run.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::test {

struct ChildResult {
  int exit_status = -1;  // what it returned, or 128 + the signal that ended it
  std::string out;
  std::string err;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// argv[0] is the program's path. `set` is added to the environment, and every OVERDRIVE_* variable
// and LD_PRELOAD of this process is left out; a seeded mistake (test/parity/faults) is the child's too.
// A child that hangs ends by SIGALRM after three minutes.
inline ChildResult run_child(const std::vector<std::string>& argv, Environment set = {}) {
  const char* const fault = std::getenv("OVERDRIVE_TEST_FAULT");
  if (fault != nullptr) set.emplace_back("OVERDRIVE_TEST_FAULT", fault);
  const bench::ProgramRun run = bench::run_program({.arguments = argv,
                                                    .set = {set.begin(), set.end()},
                                                    .left_out = {"OVERDRIVE", "LD_PRELOAD="},
                                                    .seconds_at_most = 180});
  return {run.status, run.out, run.err};
}

}  // namespace overdrive::test
