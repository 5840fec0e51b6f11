// The line that says how far a training is, and Ctrl-C for whatever takes long. Written by the main thread; the
// signal handler only sets a flag. Progress goes to stderr, so that stdout holds results alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace overdrive::cli {

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

// From here on Ctrl-C asks the training to stop after the step at hand; a second one ends the process.
void stop_on_interrupt();
bool interrupted();

// Runs a measurement that ends early where it calls check_interrupt() after Ctrl-C; then says so, and is true.
bool stopped_early(const std::function<void()>& measure);
void check_interrupt();
// The line that says it, for those who stop by themselves.
void say_stopped();

}  // namespace overdrive::cli
