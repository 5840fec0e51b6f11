// The thread that recomputes regions while a backward makes gradients. One for the process, never destroyed;
// starts with the first order, ends and is joined at exit. Any thread may order. A child of fork() has no such
// thread and starts its own. Does not know what it runs.
#pragma once

#include "checkpoint/ahead_run.h"

#include <deque>
#include <thread>

namespace overdrive::checkpoint {

class AheadThread {
 public:
  static AheadThread& get();
  AheadThread();

  void order(std::shared_ptr<AheadRun> run) OVERDRIVE_EXCLUDES(mutex_);

 private:
  void serve() OVERDRIVE_EXCLUDES(mutex_);
  void end() OVERDRIVE_EXCLUDES(mutex_);

  // Held across fork(), from the one to the other.
  static void lock_before_fork() OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS;
  static void unlock_in_parent() OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS;
  static void start_afresh_in_child() OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS;

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<AheadRun>> ordered_ OVERDRIVE_GUARDED_BY(mutex_);
  bool ending_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  std::thread thread_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::checkpoint
