// What a training cost under one engine. Plain values.
#pragma once

#include <cstdint>
#include <vector>

namespace overdrive::harness {

// Tensor memory that a training holds at a moment of a step: its model, gradients and optimizer included.
struct MemorySample {
  double seconds = 0;  // since the step began
  int64_t tensor_bytes = 0;
};

struct Times {
  std::vector<double> step, forward, backward;  // seconds
};

struct Cost {
  std::vector<double> losses;  // one per step
  Times every_step;            // of the timed steps, in order
  Times blocks;                // medians of the steps of each block
  double quality = 0;

  // Of the first block, which warms up and is not timed.
  int64_t peak_tensor_bytes = 0;     // the highest such sample of any step
  int64_t peak_heap_bytes = 0;       // from operator new, beyond what was alive before a step; -1: not counted
  double tensor_allocations = 0;     // a step
  double heap_allocations = 0;       // a step
  std::vector<MemorySample> memory;  // the step with that peak, thinned out

  // Of the timed blocks.
  double waits = 0;             // a step: a thread gave up its processor to wait
  double preemptions = 0;       // a step: a thread had to give it up
  int64_t threads_started = 0;  // and still there at the end of the block that started them
};

}  // namespace overdrive::harness
