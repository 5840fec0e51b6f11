// One thread's part in a run with devices: the node that runs on it now, what it has made ready for itself, and
// how what a node leaves behind is put right. Of that thread alone; a worker's is on its stack, the caller's
// in the run.
#pragma once

#include "engine/run/active_run.h"
#include "engine/base/counters.h"
#include "engine/devices/device_plan.h"
#include "engine/devices/device_task.h"
#include "engine/host/host.h"
#include "engine/devices/stream_sync.h"
#include "engine/host/thread_state.h"

#include <optional>
#include <utility>

namespace overdrive::engine {

class Seat {
 public:
  // `current_node` is where get_current_node() looks on this thread, or null.
  Seat(Lane of_lane, ThreadContext& context, base::GraphTask* task, ThreadState& state, CurrentDevice device,
       host::NodeBits* current_node)
      : lane(of_lane),
        active(context, task, state),
        state_(state),
        device_(device),
        current_node_(current_node),
        between_nodes_(current_node == nullptr ? host::NodeBits() : *current_node) {}
  ~Seat() { count(Count::kNodes, nodes_run_); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  void begin_node(base::Node* node) {
    if (nodes_run_++ == 0) device_.restore();
    made_several = false;
    active.node = node;
    if (current_node_ != nullptr) *current_node_ = host::bits_of(*node);
  }
  // What a node or hook left behind must not reach the next.
  void end_node(bool user_code) {
    if (current_node_ != nullptr) *current_node_ = between_nodes_;
    state_.restore_after_node(user_code);
    device_.restore();
  }

  // The task in `next`, which is then empty.
  DeviceTask take_next() { return *std::exchange(next, std::nullopt); }

  const Lane lane;  // whose nodes run here
  ActiveRun active;
  base::variable_list inputs;      // of the node that is running
  std::optional<DeviceTask> next;  // the only one that the running node has made ready for this lane, so far
  bool made_several = false;       // it has made more, which are in the queue

 private:
  ThreadState& state_;
  const CurrentDevice device_;
  host::NodeBits* const current_node_;
  const host::NodeBits between_nodes_;
  uint64_t nodes_run_ = 0;
};

}  // namespace overdrive::engine
