#include "hooks/memory/prefetch.h"

#include <utility>

namespace overdrive::hooks {

Prefetch::Announced Prefetch::announce() {
  const base::MutexLock lock(mutex_);
  if (state_ == State::kUnwanted) return Announced::kNo;
  ++will_ask_;
  if (state_ != State::kNone) return Announced::kComing;
  state_ = State::kAnnounced;
  return Announced::kToBeRun;
}

void Prefetch::passed() {
  Fetched unused;  // goes without the lock
  const base::MutexLock lock(mutex_);
  if (will_ask_ > 0) --will_ask_;
  // What nobody has taken may still be asked for: who asks when is a guess.
  if (will_ask_ > 0 || !was_taken_) return;
  std::swap(unused, result_);
  was_taken_ = false;
  state_ = State::kNone;
}

bool Prefetch::is_announced() {
  const base::MutexLock lock(mutex_);
  return state_ == State::kAnnounced;
}

void Prefetch::run(const std::function<Fetched()>& fetch) {
  {
    const base::MutexLock lock(mutex_);
    if (state_ != State::kAnnounced) return;
    state_ = State::kUnderWay;
  }
  Fetched result;
  try {
    result = fetch();
  } catch (...) {
    result = Fetched();
  }
  {
    const base::MutexLock lock(mutex_);
    const bool is_wanted = state_ == State::kUnderWay && result.tensor.defined();
    state_ = is_wanted ? State::kReady : State::kNone;
    if (is_wanted) std::swap(result_, result);
  }
  arrived_.notify_all();
}

void Prefetch::have(const Fetched& there) {
  const base::MutexLock lock(mutex_);
  if (state_ != State::kAnnounced) return;
  result_ = there;
  was_taken_ = true;
  state_ = State::kReady;
}

Prefetch::Result Prefetch::take() {
  Result result;
  base::MutexLock lock(mutex_);
  const bool late = state_ == State::kUnderWay;
  if (late) {
    lock.wait(arrived_, [this]() OVERDRIVE_REQUIRES(mutex_) { return state_ != State::kUnderWay; });
  }
  if (state_ == State::kReady) {
    was_taken_ = will_ask_ > 1;
    result = {was_taken_ ? result_ : std::exchange(result_, Fetched()), late ? Came::kLate : Came::kInTime};
  }
  if (state_ != State::kUnwanted && !was_taken_) state_ = State::kNone;
  return result;
}

void Prefetch::offer(const Fetched& made) {
  const base::MutexLock lock(mutex_);
  if (will_ask_ < 2 || state_ != State::kNone) return;
  result_ = made;
  was_taken_ = true;
  state_ = State::kReady;
}

bool Prefetch::forget() {
  Fetched unused;  // goes without the lock
  const base::MutexLock lock(mutex_);
  std::swap(unused, result_);
  will_ask_ = 0;
  if (state_ == State::kUnderWay || state_ == State::kUnwanted) {
    state_ = State::kUnwanted;
  } else {
    state_ = State::kNone;
  }
  return unused.tensor.defined() && !std::exchange(was_taken_, false);
}

}  // namespace overdrive::hooks
