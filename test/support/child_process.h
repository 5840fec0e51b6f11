// Runs a small program in a process of its own and says how it ended and what it printed. One
// object a run; any thread. Leaves to the caller what the program is and what it should print.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace overdrive::test {

struct ChildResult {
  int exit_status = -1;  // what it returned, or 1000 + the signal that ended it
  std::string out;
  std::string err;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// argv[0] is the program's path. `set` is added to the environment, and every OVERDRIVE_* variable
// and LD_PRELOAD of this process is left out. A child that hangs ends by SIGALRM after three minutes.
ChildResult run_child(const std::vector<std::string>& argv, const Environment& set = {});

}  // namespace overdrive::test
