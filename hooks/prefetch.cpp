#include "hooks/prefetch.h"

#include <utility>

namespace overdrive::hooks {

bool Prefetch::announce() {
  const base::MutexLock lock(mutex_);
  if (state_ != State::kNone) return false;
  state_ = State::kAnnounced;
  return true;
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

Prefetch::Result Prefetch::take() {
  Result result;
  base::MutexLock lock(mutex_);
  const bool late = state_ == State::kUnderWay;
  if (late) {
    lock.wait(arrived_, [this]() OVERDRIVE_REQUIRES(mutex_) { return state_ != State::kUnderWay; });
  }
  if (state_ == State::kReady) {
    result = {std::exchange(result_, Fetched()), late ? Came::kLate : Came::kInTime};
  }
  if (state_ != State::kUnwanted) state_ = State::kNone;
  return result;
}

bool Prefetch::forget() {
  Fetched unused;  // goes without the lock
  const base::MutexLock lock(mutex_);
  std::swap(unused, result_);
  if (state_ == State::kUnderWay || state_ == State::kUnwanted) {
    state_ = State::kUnwanted;
  } else {
    state_ = State::kNone;
  }
  return unused.tensor.defined();
}

}  // namespace overdrive::hooks
