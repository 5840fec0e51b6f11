#include "checkpoint/ahead/ahead_run.h"

#include <unistd.h>

#include <atomic>
#include <utility>

namespace overdrive::checkpoint {

namespace {
std::atomic<int64_t> held{0};
}

AheadRun::AheadRun(int graph_task, Make make)
    : graph_task_(graph_task), process_(::getpid()), make_(std::move(make)) {}

AheadRun::~AheadRun() {
  if (tape_) held -= tape_->bytes();
}

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
  if (tape) held += tape->bytes();
  {
    const base::MutexLock lock(mutex_);
    tape_ = std::move(tape);
    state_ = State::kOver;
  }
  changed_.notify_all();
}

std::unique_ptr<Tape> AheadRun::take() {
  std::unique_ptr<Tape> tape;
  {
    base::MutexLock lock(mutex_);
    lock.wait(changed_, [this]() OVERDRIVE_REQUIRES(mutex_) {
      return state_ != State::kRunning || process_ != ::getpid();
    });
    state_ = State::kOver;
    tape = std::move(tape_);
  }
  if (tape) held -= tape->bytes();
  return tape;
}

int64_t AheadRun::bytes_held() { return held; }

}  // namespace overdrive::checkpoint
