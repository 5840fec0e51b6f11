#include "checkpoint/ahead_run.h"

#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace overdrive::checkpoint {

namespace {
std::atomic<int64_t> held{0};
}

Surroundings::Surroundings() : threads_(at::get_num_threads()), next_node_(at::sequence_number::peek()) {
  std::fegetenv(&floating_point_);
}

void Surroundings::take_over() const {
  std::fesetenv(&floating_point_);
  if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
  while (at::sequence_number::peek() < next_node_) at::sequence_number::get_and_increment();
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
