// Runs another program and tells what it printed and what it cost. Each call stands alone; any thread. Decides
// nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace overdrive::bench {

struct ProgramCall {
  std::vector<std::string> arguments;  // the first is the program, searched in PATH when it has no slash
  std::map<std::string, std::string> set = {};  // variables that it sees beside ours
  std::vector<std::string> left_out = {};       // our variables whose names begin so are not passed on
  // Above 0: the program is ended by SIGALRM after so long.
  int seconds_at_most = 0;
};

struct ProgramRun {
  std::string out, err;  // all it wrote
  int status = 0;        // as a shell would give it: 128 + N when signal N ended it
  double seconds = 0;
  double cpu_seconds = 0;  // of all its threads, also inside the kernel
  int64_t peak_kib = 0;    // most of its memory that was in use at once
};

// Variables under which a program preloads the library, before what it preloads anyway. The loader takes blanks
// and colons for the end of a name there; a folder with a blank goes to the folders that it searches. Throws
// std::runtime_error when the path has a colon.
std::map<std::string, std::string> preloading(const std::string& library, const std::string& others = "");

// Runs the program to its end, with nothing on its standard input. Throws std::runtime_error when it cannot be
// started.
ProgramRun run_program(const ProgramCall& call);

// Starts the program, in a process group of its own and with our files, and gives its process. Throws as above.
pid_t start_program(const ProgramCall& call);

}  // namespace overdrive::bench
