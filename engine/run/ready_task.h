// A node that is ready to run, as it waits in a heap or a queue. Plain values.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/plan/ready_heap.h"

namespace overdrive::engine {

// The run that a task belongs to. Run and DeviceRun derive from it.
struct AnyRun {};

struct ReadyTask {
  TaskRank rank;
  uint32_t node = 0;      // in its run's plan
  AnyRun* run = nullptr;  // lives until all its tasks are done; null in a task of a backward that failed
  base::NodePtr keep;     // keeps the node alive until its outputs are distributed
};

}  // namespace overdrive::engine
