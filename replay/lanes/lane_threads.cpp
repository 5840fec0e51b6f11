#include "replay/lanes/lane_threads.h"

#include "engine/base/job_thread.h"
#include "engine/base/no_destructor.h"
#include "replay/lanes/cores.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

// Of the libraries that LibTorch's kernels have their threads from, where it exports them.
extern "C" __attribute__((weak)) void omp_set_num_threads(int);
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int);

namespace overdrive::replay {

namespace {

// A thread is asleep, or waits awake. A lease holds it: it waits for its work, works, and is done.
enum State : uint32_t { kAsleep, kIdle, kHeld, kWorks, kDone };

// Each kernel runs on its lane alone. LibTorch's own call would set the number for the threads of the program,
// too.
void run_kernels_on_this_thread_alone() {
  at::get_num_threads();  // LibTorch sets up the thread first
  if (&omp_set_num_threads) omp_set_num_threads(1);
  if (&MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(1);
}

// Two lanes that wait for each other in turn.
class PingPong final : public LaneWork {
 public:
  static constexpr uint32_t kTurns = 20;

  void work(int /*lane*/) noexcept override {
    for (uint32_t turn = 1; turn <= kTurns; ++turn) {
      ping_.await(LaneThreads::get().awake(), [turn](uint32_t seen) { return seen >= turn; });
      pong_.set(turn);
    }
  }
  double nanoseconds_of_a_hand_over() {
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t turn = 1; turn <= kTurns; ++turn) {
      ping_.set(turn);
      pong_.await(LaneThreads::get().awake(), [turn](uint32_t seen) { return seen >= turn; });
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    return time.count() / (2 * kTurns);
  }

 private:
  Signal ping_, pong_;
};

}  // namespace

struct LaneThreads::Thread {
  explicit Thread(base::JobThread& of_process) : job(of_process) {}

  base::JobThread& job;
  Signal state;
  // Between kHeld and kDone.
  LaneWork* work = nullptr;
  int lane = 0;
};

LaneThreads& LaneThreads::get() {
  static base::NoDestructor<LaneThreads> threads;
  return *threads;
}

// A child has the thread that forked, and no other.
LaneThreads::LaneThreads()
    : mutex_("lane threads",
             []() OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS {
               get().is_closed_ = true;
               get().running_ = 0;
             }),
      cores_(cores_given()) {}

void LaneThreads::set_cores(int cores) {
  const int given = cores_given(), now = cores > 0 ? cores : given;
  is_crowded_.store(now > given, std::memory_order_relaxed);
  const base::MutexLock lock(mutex_);
  cores_ = now;
}

int LaneThreads::cores() {
  const base::MutexLock lock(mutex_);
  return is_closed_ ? 1 : cores_;
}

double LaneThreads::hand_over() {
  {
    const base::MutexLock lock(mutex_);
    if (hand_over_ > 0) return hand_over_;
  }
  // The best of many short ones: another program that takes the processor for a moment says nothing of the
  // machine.
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < 60; ++round) {
    LaneLease lease(2);
    if (!lease) return 0;
    PingPong game;
    lease.begin(game);
    best = std::min(best, game.nanoseconds_of_a_hand_over());
    lease.end();
  }
  const base::MutexLock lock(mutex_);
  // More is no hand-over between two processors: others had them all the time.
  constexpr double kMost = 1000;
  return hand_over_ = std::min(best, kMost);
}

LaneThreads::Thread& LaneThreads::new_thread() {
  const std::string name = "od-lane-" + std::to_string(threads_.size() + 1);
  Thread& thread = *threads_.emplace_back(std::make_unique<Thread>(base::JobThread::of_process(name)));
  // After the handler of the job threads, so that it runs before it: a thread that is leased must not end.
  static const bool registered = std::atexit([] { get().close(); }) == 0;
  (void)registered;
  return thread;
}

// A thread that is asleep is woken here, because that may fail.
std::vector<LaneThreads::Thread*> LaneThreads::lease(int lanes) {
  const base::MutexLock lock(mutex_);
  if (is_closed_ || lanes < 2 || running_ + lanes > cores_) return {};
  std::vector<Thread*> leased;
  try {
    while (static_cast<int>(free_.size()) < lanes - 1) free_.push_back(&new_thread());
    // The one that was used last is the most likely to be awake.
    leased.assign(free_.end() - (lanes - 1), free_.end());
    for (Thread* thread : leased) {
      if (thread->state.change(kIdle, kHeld)) continue;
      thread->job.push([this, thread] { serve(*thread); });
      thread->state.change(kAsleep, kHeld);
    }
  } catch (const std::exception&) {  // no memory, or no thread: one lane is enough
    for (Thread* thread : leased) thread->state.change(kHeld, kIdle);
    return {};
  }
  free_.resize(free_.size() - leased.size());
  running_ += lanes;
  return leased;
}

void LaneThreads::give_back(const std::vector<Thread*>& threads) {
  const base::MutexLock lock(mutex_);
  free_.insert(free_.end(), threads.begin(), threads.end());
  running_ -= static_cast<int>(threads.size()) + 1;
}

// Runs that are under way end first: each is a part of a step.
void LaneThreads::close() {
  const auto is_over = [this] {
    const base::MutexLock lock(mutex_);
    is_closed_ = true;
    return running_ == 0;
  };
  constexpr std::chrono::seconds kMost{2};
  for (const auto begin = Awake::Clock::now(); !is_over() && Awake::Clock::now() - begin < kMost;)
    sched_yield();
}

void LaneThreads::serve(Thread& thread) {
  static thread_local const bool is_set_up = (run_kernels_on_this_thread_alone(), true);
  (void)is_set_up;
  const auto works = [](uint32_t state) { return state == kWorks; };
  while (true) {
    Awake moment;
    while (!works(thread.state.now()) && moment.wait(awake_between_runs())) {
    }
    if (works(thread.state.now())) {
      thread.work->work(thread.lane);
      thread.state.set(kDone);
    } else if (thread.state.change(kIdle, kAsleep)) {
      return;
    } else {  // a run has the thread
      thread.state.await(awake(), [](uint32_t state) { return state == kWorks || state == kIdle; });
    }
  }
}

void LaneLease::begin(LaneWork& work) {
  is_begun_ = true;
  for (size_t i = 0; i < threads_.size(); ++i) {
    threads_[i]->work = &work;
    threads_[i]->lane = static_cast<int>(i) + 1;
    threads_[i]->state.set(kWorks);
  }
}

void LaneLease::end() {
  if (!is_begun_) return;
  is_begun_ = false;
  for (LaneThreads::Thread* thread : threads_) {
    thread->state.await(LaneThreads::get().awake(), [](uint32_t state) { return state == kDone; });
    thread->state.set(kHeld);
  }
}

LaneLease::~LaneLease() {
  if (threads_.empty()) return;
  end();
  for (LaneThreads::Thread* thread : threads_) thread->state.set(kIdle);
  LaneThreads::get().give_back(threads_);
}

}  // namespace overdrive::replay
