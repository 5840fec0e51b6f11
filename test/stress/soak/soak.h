// Hours of everything at once: threads running random programs while another switches the engine and a third
// forks. Owned by the command; uses the whole process while it runs. Prints nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace overdrive::soak {

struct SoakOptions {
  double minutes = 2;
  uint64_t seed = 1;
  int threads = 4;
  // Asked by every thread; true ends the round at hand, and it is the last.
  std::function<bool()> stop = [] { return false; };
};

// What the process holds between two rounds, when nothing of ours is running.
struct ProcessState {
  int64_t resident_kib = 0;
  int64_t threads = 0;
  int64_t files = 0;
  int64_t live_graphs = 0;
};

struct RoundResult {
  int64_t round = 0;
  int64_t programs = 0;
  int64_t switches = 0;
  int64_t forks = 0;
  ProcessState after;
  std::vector<std::string> failures;
};

// Runs rounds until the time is over, at least four: the first warms up, every later one must leave the process
// as the second did. Gives what went wrong, nothing when all is well.
std::vector<std::string> run(const SoakOptions& options,
                             const std::function<void(const RoundResult&)>& on_round);

}  // namespace overdrive::soak
