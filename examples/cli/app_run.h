// Runs another program to its end and tells what it printed and what it cost. One at a time, on the calling
// thread; Ctrl-C reaches the program as well. Decides nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace overdrive::cli {

struct AppRun {
  std::string out, err;  // all it wrote
  int status = 0;        // as a shell would give it: 128 + N when signal N ended it
  double seconds = 0;
  double cpu_seconds = 0;  // of all its threads, also inside the kernel
  int64_t peak_kib = 0;    // most of its memory that was in use at once
};

// `arguments`: the program, searched in PATH when it has no slash, and what it is given. `changes`: variables
// that it sees beside ours. Throws UsageError when it cannot be started.
AppRun run_app(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& changes);

}  // namespace overdrive::cli
