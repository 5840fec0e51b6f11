// The run state of a thread in a run with devices: it keeps the thread on its device, and holds the task that
// the running node has made ready for its own thread. Used by that thread alone.
#pragma once

#include "engine/devices/device_plan.h"
#include "engine/devices/stream_sync.h"
#include "engine/run/thread_run_state.h"

#include <optional>
#include <utility>

namespace overdrive::engine {

struct DeviceRunState {
  DeviceRunState(QueueIndex of_queue, ThreadContext& context, ThreadState& state, const RunOptions& options,
                 host::NodeBits* current_node, CurrentDevice of_device, GradientLists& lists)
      : queue_index(of_queue), device(of_device), thread(context, state, options, current_node, lists) {}

  void begin_node() {
    if (thread.nodes_run() == 0) device.restore();
    made_several = false;
  }
  // The task in `next`, which is then empty.
  ReadyTask take_next() { return *std::exchange(next, std::nullopt); }

  const QueueIndex queue_index;  // of the nodes that run here
  const CurrentDevice device;
  ThreadRunState thread;
  std::optional<ReadyTask> next;  // the only task that the running node has made ready for this queue, so far
  bool made_several = false;      // the node has made more, which are in the queue
};

}  // namespace overdrive::engine
