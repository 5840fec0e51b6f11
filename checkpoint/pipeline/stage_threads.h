// Threads that take the parts of a batch through the stages of a chain: each stage has its own, and does one
// part after the other; a part goes from stage to stage. What they do they do in the modes of the caller, and
// they number nodes as if it ran one part after the other, so a backward takes them in the same order. Owned by
// a pipeline and its graphs; started with the first batch, joined in the destructor. Any thread may run()
// batches.
#pragma once

#include "engine/base/job_thread.h"
#include "engine/base/mutex.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

namespace overdrive::checkpoint {

class StageThreads {
 public:
  explicit StageThreads(size_t stages);

  using Task = std::function<void(size_t part, size_t stage)>;
  struct Work {
    // Parts; a part makes about so many nodes, if the order of nodes of different parts matters.
    size_t begin = 0;
    size_t end = 0;
    uint64_t nodes = 0;
    Task task;
    // On the thread of the stage that will do the part, perhaps while the stage before does it. Does not throw.
    Task prepare = {};
  };
  // Calls the task for each part and every stage. Returns when nothing runs any more. Where tasks throw, the
  // error is that of the first part that failed, as one after the other; later parts may not have run. An
  // error, too, where somebody drew random numbers from the CPU's generator meanwhile: in which order, nobody
  // knows.
  void run(const Work& work) OVERDRIVE_EXCLUDES(pushing_);

  // Not where something of this thread's other than its modes has a part in what is done, and not on one of the
  // stages' threads, which others may be waiting for.
  static bool may_work_for_this_thread();

 private:
  std::deque<base::JobThread> threads_;
  std::atomic<uint64_t> next_node_{0};  // above all that the threads have made
  base::Mutex pushing_;  // all threads take batches in one order, or two could wait for each other
};

}  // namespace overdrive::checkpoint
