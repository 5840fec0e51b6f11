#include "checkpoint/ahead/ahead_run.h"

#include <unistd.h>

#include <utility>

namespace overdrive::checkpoint {

AheadRun::AheadRun(int graph_task, Make make)
    : graph_task_(graph_task), process_(::getpid()), make_(std::move(make)) {}

bool AheadRun::is_wanted() {
  const base::MutexLock lock(mutex_);
  return state_ == State::kOrdered && process_ == ::getpid();
}

void AheadRun::run() noexcept {
  {
    const base::MutexLock lock(mutex_);
    if (state_ != State::kOrdered) return;
    state_ = State::kRunning;
  }
  std::unique_ptr<Tape> tape;
  try {
    tape = make_();
  } catch (...) {  // see above
  }
  {
    const base::MutexLock lock(mutex_);
    tape_ = std::move(tape);
    state_ = State::kOver;
  }
  changed_.notify_all();
}

std::unique_ptr<Tape> AheadRun::take() {
  base::MutexLock lock(mutex_);
  lock.wait(changed_, [this]() OVERDRIVE_REQUIRES(mutex_) {
    return state_ != State::kRunning || process_ != ::getpid();
  });
  state_ = State::kOver;
  return std::move(tape_);
}

}  // namespace overdrive::checkpoint
