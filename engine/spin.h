// Waiting awake, for a moment: when a hand-over between two threads is near, falling asleep costs more
// than the wait. Any thread. Threads that run backwards with workers are counted while they are awake;
// nobody spins while there are more of them than processors, so that a spinner is never in the way of the
// thread that it waits for. When it is other programs that want the processors, nobody spins for a second.
#pragma once

namespace overdrive::engine {

constexpr long kSpinNanoseconds = 20'000;

// One more, or one less, of those that are awake. Whoever wakes a thread counts it, not the thread itself.
void count_awake(int change);
// In a child of fork(), which has none of the threads.
void forget_awake();

// A thread that takes part in backwards with workers, while it does.
class AwakeScope {
 public:
  AwakeScope() { count_awake(1); }
  ~AwakeScope() { count_awake(-1); }
  AwakeScope(const AwakeScope&) = delete;
  AwakeScope& operator=(const AwakeScope&) = delete;
};

class Spin {
 public:
  Spin();
  ~Spin();
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

  // A moment of waiting. False when there is to be no more of it.
  bool wait();

 private:
  const long begin_;  // the clock's nanoseconds
  const bool granted_;
  int turns_ = 0;
};

// Returns when `ready()` holds or the time is up.
template <typename Ready>
void spin_until(Ready&& ready) {
  if (ready()) return;
  Spin spin;
  while (spin.wait() && !ready()) {
  }
}

}  // namespace overdrive::engine
