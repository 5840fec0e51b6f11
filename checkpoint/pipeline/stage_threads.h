// Threads that take the parts of a batch through the stages of a chain: each stage has its own, and does one
// part after the other; a part goes from stage to stage. What they do they do in the modes of the caller, and
// they number nodes as if it ran one part after the other, so a backward takes them in the same order. Owned by
// a pipeline; started with the first batch, joined in the destructor. Any thread may run() batches.
#pragma once

#include "engine/base/job_thread.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

namespace overdrive::checkpoint {

class StageThreads {
 public:
  explicit StageThreads(size_t stages);

  // Calls task(part, stage) for the parts from `begin` to `end` and every stage. Returns when nothing runs any
  // more. Where tasks throw, the error is that of the first part that failed, as one after the other; later
  // parts may not have run. A part makes about so many nodes.
  using Task = std::function<void(size_t part, size_t stage)>;
  void run(size_t begin, size_t end, uint64_t nodes, const Task& task);

 private:
  std::deque<base::JobThread> threads_;
  std::atomic<uint64_t> next_node_{0};  // above all that the threads have made
};

}  // namespace overdrive::checkpoint
