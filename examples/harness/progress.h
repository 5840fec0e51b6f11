// The line that says how far a training is. Written by the main thread to stderr, so that stdout holds results
// alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace overdrive::harness {

class Progress {
 public:
  // `before`: steps that an earlier training did.
  Progress(std::string name, int64_t steps, bool quiet, int64_t before = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // On a terminal one line that is written over; else a line every ten seconds.
  void show(int64_t done, double loss);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string name_;
  const int64_t steps_;
  const int64_t before_;
  const bool quiet_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point shown_;
  bool line_open_ = false;
};

}  // namespace overdrive::harness
