#include "examples/harness/progress.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <utility>

namespace overdrive::harness {

namespace {

int64_t resident_mebibytes() {
  std::ifstream file("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * sysconf(_SC_PAGESIZE) / (1 << 20);
}

}  // namespace

Progress::Progress(std::string name, int64_t steps, bool quiet, int64_t before)
    : name_(std::move(name)),
      steps_(steps),
      before_(before),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_(start_) {}

Progress::~Progress() {
  if (line_open_) std::fputs("\r\033[K", stderr);
}

void Progress::show(int64_t done, double loss) {
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

}  // namespace overdrive::harness
