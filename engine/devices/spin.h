// Waiting awake, for a moment: when a hand-over between two threads is near, falling asleep costs more
// than the wait. Any thread. Backwards with workers count their threads while they run; nobody spins while
// there are more of them than processors. A system that has few processors puts threads that wake each other on
// the same one, where a hand-over costs a microsecond or two; a spinner would keep that one busy, drive them
// apart, and make each hand-over ten times as dear. When it is other programs that want the
// processors, nobody spins for a second.
#pragma once

namespace overdrive::engine {

constexpr long kSpinNanoseconds = 20'000;

// A number of threads that take part in a backward, while they do, asleep or not.
class Participants {
 public:
  explicit Participants(int threads);
  ~Participants();
  Participants(const Participants&) = delete;
  Participants& operator=(const Participants&) = delete;

  // In a child of fork(), which has none of the threads.
  static void forget_all();

 private:
  const int threads_;
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
