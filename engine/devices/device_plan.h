// The threads of the nodes of a graph with devices: a function of the plan, the option of the user and the
// calling thread. Owned by a backward, read by all threads of its run. Starts no thread.
#pragma once

#include "engine/options.h"
#include "engine/plan/plan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace overdrive::engine {

// Nodes of one queue run one after another. In a run that hands nodes over, queue 0 is the calling thread's and
// each other queue that of a device's worker. In other runs all queues belong to the calling thread.
using QueueIndex = uint16_t;
constexpr QueueIndex kMainQueue = 0;
// For leaf accumulation in a run that hands nothing over, off the device of all other nodes. The host does it
// in another queue, so it must not disturb the order of ties in the main one.
constexpr QueueIndex kSecondaryQueue = 1;

class DevicePlan {
 public:
  // `owner_device`: of the worker whose thread calls, if a worker's does.
  DevicePlan(const Plan& plan, Threads threads, std::optional<c10::Device> owner_device);

  // Whether other threads take part.
  bool hands_over() const { return !devices_.empty(); }
  // Of the queues 1, 2 ...
  const std::vector<c10::Device>& devices() const { return devices_; }
  // For a queue without a worker: the caller runs its nodes.
  void give_to_caller(QueueIndex queue);
  // The type of the devices.
  c10::DeviceType type() const { return type_; }

  QueueIndex queue_of(uint32_t node) const {
    return queue_indices_.empty() ? kMainQueue : queue_indices_[node];
  }

 private:
  using Devices = std::vector<c10::Device>;  // of each node

  void use_secondary_queue(const Devices& of_nodes, c10::Device main_device);
  void hand_over(const Devices& of_nodes, std::optional<c10::Device> owner_device);
  QueueIndex queue_for(c10::Device device);

  c10::DeviceType type_ = c10::kCPU;
  std::vector<QueueIndex> queue_indices_;  // of each node; empty: all in the main one
  std::vector<c10::Device> devices_;
};

}  // namespace overdrive::engine
