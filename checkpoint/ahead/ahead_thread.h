// The thread that recomputes regions while a backward makes gradients. One for the process, never destroyed;
// starts with the first order, ends and is joined at exit, when what was not begun is left. Any thread may
// order. Does not know what it runs.
#pragma once

#include "checkpoint/ahead/ahead_run.h"
#include "engine/base/job_thread.h"

#include <atomic>

namespace overdrive::checkpoint {

class AheadThread {
 public:
  static AheadThread& get();
  AheadThread();

  void order(std::shared_ptr<AheadRun> run);

 private:
  // Held across fork(), from the one to the other.
  static void hold() OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS;
  static void let_go() OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS;

  std::atomic<bool> ending_{false};
  base::JobThread thread_{"overdrive-ahead"};
};

}  // namespace overdrive::checkpoint
