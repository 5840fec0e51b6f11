// The line that says how far a training is. Written by the main thread to stderr, so that stdout holds results
// alone.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

namespace overdrive::harness {

class Progress {
 public:
  // `before`: steps that an earlier training did.
  Progress(std::string name, int64_t steps, bool quiet, int64_t before = 0)
      : name_(std::move(name)), steps_(steps), before_(before), quiet_(quiet) {}
  ~Progress() {
    if (line_open_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // On a terminal one line that is written over; else a line every ten seconds.
  void show(int64_t done, double loss) {
    const auto now = Clock::now();
    const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
    if (quiet_ || now - shown_ < pause) return;
    shown_ = now;
    const double passed = std::chrono::duration<double>(now - start_).count();
    const double rate = static_cast<double>(done - before_) / passed;
    std::fprintf(stderr, "%s%s: step %lld of %lld, loss %.4f, %.1f steps/s, %.0f s left, %lld MiB%s",
                 terminal_ ? "\r\033[K" : "", name_.c_str(), static_cast<long long>(done),
                 static_cast<long long>(steps_), loss, rate, static_cast<double>(steps_ - done) / rate,
                 static_cast<long long>(resident_mebibytes()), terminal_ ? "" : "\n");
    line_open_ = terminal_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static int64_t resident_mebibytes() {
    std::ifstream file("/proc/self/statm");
    int64_t whole = 0, resident = 0;
    file >> whole >> resident;
    return resident * sysconf(_SC_PAGESIZE) / (1 << 20);
  }

  const std::string name_;
  const int64_t steps_;
  const int64_t before_;
  const bool quiet_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
  bool line_open_ = false;
};

}  // namespace overdrive::harness
