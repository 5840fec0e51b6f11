// The threads of lanes, a pool of the process. A run leases the threads that it needs, or none: no more lanes
// run at once than the process has processors. A thread that was used waits awake for the next run for a
// moment, then sleeps. A child of fork() has none, and a process that ends neither. Any thread may lease.
#pragma once

#include "engine/base/process_mutex.h"
#include "replay/lanes/signal.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

namespace overdrive::base {
class JobThread;
}

namespace overdrive::replay {

// What the threads of a lease run. Throws nothing.
struct LaneWork {
  virtual ~LaneWork() = default;
  virtual void work(int lane) noexcept = 0;
};

class LaneThreads {
 public:
  // How long a thread waits awake before it sleeps: for another lane, and for the next run. Not at all where
  // more lanes run than there are processors, as a test may ask: a thread that waits would keep away the one
  // that it waits for.
  std::chrono::microseconds awake() const { return is_crowded() ? kNever : kAwake; }
  std::chrono::microseconds awake_between_runs() const { return is_crowded() ? kNever : kAwakeBetweenRuns; }

  static LaneThreads& get();
  LaneThreads();

  // The process may have other processors by now, or a test wants to say how many. 0: as they are given.
  void set_cores(int cores) OVERDRIVE_EXCLUDES(mutex_);
  int cores() OVERDRIVE_EXCLUDES(mutex_);
  // Nanoseconds from the end of a step on one lane to the begin of another one, measured once. None while there
  // are no threads.
  double hand_over() OVERDRIVE_EXCLUDES(mutex_);

 private:
  friend class LaneLease;
  struct Thread;

  static constexpr std::chrono::microseconds kNever{0}, kAwake{50}, kAwakeBetweenRuns{200};

  bool is_crowded() const { return is_crowded_.load(std::memory_order_relaxed); }
  void serve(Thread& thread);
  // Threads for all lanes but the caller's; fewer: there are none.
  std::vector<Thread*> lease(int lanes) OVERDRIVE_EXCLUDES(mutex_);
  void give_back(const std::vector<Thread*>& threads) OVERDRIVE_EXCLUDES(mutex_);
  Thread& new_thread() OVERDRIVE_REQUIRES(mutex_);
  void close() OVERDRIVE_EXCLUDES(mutex_);

  std::atomic<bool> is_crowded_{false};
  base::ProcessMutex mutex_;
  int cores_ OVERDRIVE_GUARDED_BY(mutex_);
  int running_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  bool is_closed_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  double hand_over_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Thread>> threads_ OVERDRIVE_GUARDED_BY(mutex_);
  std::vector<Thread*> free_ OVERDRIVE_GUARDED_BY(mutex_);
};

// Threads for a run, for as long as it lasts.
class LaneLease {
 public:
  explicit LaneLease(int lanes) : threads_(LaneThreads::get().lease(lanes)) {}
  ~LaneLease();
  LaneLease(const LaneLease&) = delete;
  LaneLease& operator=(const LaneLease&) = delete;

  explicit operator bool() const { return !threads_.empty(); }
  // The threads begin with lanes 1, 2 and so on.
  void begin(LaneWork& work);
  // Returns when all have ended. The destructor waits, too.
  void end();

 private:
  std::vector<LaneThreads::Thread*> threads_;
  bool is_begun_ = false;
};

}  // namespace overdrive::replay
