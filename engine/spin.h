// Waiting awake, for a moment: when a hand-over between two threads is near, falling asleep costs more
// than the wait. Any thread. No more threads spin at a time than there are processors, and each
// lets others run in between; when those turn out to be other programs, nobody spins for a second.
#pragma once

namespace overdrive::engine {

enum class Look {
  kNot,
  kAMoment,  // up to kSpinNanoseconds
};

constexpr long kSpinNanoseconds = 20'000;

// One of the places among those who may spin, while it lives.
class SpinPlace {
 public:
  SpinPlace();
  ~SpinPlace();
  SpinPlace(const SpinPlace&) = delete;
  SpinPlace& operator=(const SpinPlace&) = delete;

  bool granted() const { return granted_; }
  // A moment of waiting. False when the time is up.
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
  SpinPlace place;
  while (place.granted() && !ready() && place.wait()) {
  }
}

}  // namespace overdrive::engine
