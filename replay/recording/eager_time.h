// How long an eager call takes: from the begin of this object's life, or what the caller says that the function
// alone took, as the package of Python does, which looks at the function around it. On the calling thread.
#pragma once

#include <chrono>

namespace overdrive::replay {

class EagerTime {
 public:
  EagerTime() { given() = 0; }

  double seconds() const {
    return given() > 0 ? given() : std::chrono::duration<double>(Clock::now() - start_).count();
  }
  // Of the call that is under way on this thread.
  static void give(double seconds) { given() = seconds; }

 private:
  using Clock = std::chrono::steady_clock;

  static double& given() {
    thread_local double seconds = 0;
    return seconds;
  }

  const Clock::time_point start_ = Clock::now();
};

}  // namespace overdrive::replay
