// A node of a backward with devices that is ready to run, and the queue it waits in. Plain values.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/devices/device_queue.h"

namespace overdrive::engine {

class DeviceRun;

struct DeviceTask {
  TaskRank rank;
  uint32_t node = 0;         // in its run's plan
  DeviceRun* run = nullptr;  // lives until all its tasks are done
  base::NodePtr keep;        // keeps the node alive until its outputs are distributed
};

using TaskQueue = DeviceQueue<DeviceTask>;

}  // namespace overdrive::engine
