// Waiting awake, for a moment: a thread that falls asleep just before a hand-over loses more time than a thread
// that waits. Any thread. Backwards with workers count their threads while they run. No thread spins while more
// threads are counted than the machine has processors: a system with few processors puts threads that wake each
// other on one processor, where a hand-over costs a microsecond or two. A spinning thread would keep this
// processor busy, drive the threads apart, and make each hand-over ten times as dear. No thread spins for a
// second after another program took the processor of a spinning thread.
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
