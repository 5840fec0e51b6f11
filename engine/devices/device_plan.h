// The threads of the nodes of a graph with devices: a function of the plan, the option of the user and the
// calling thread. Owned by a backward, read by all threads of its run. Starts no thread.
#pragma once

#include "engine/options.h"
#include "engine/plan/plan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace overdrive::engine {

// Nodes of one lane run one after another. In a run that hands nodes over, lane 0 is the calling thread and
// each other lane is the worker of a device. In other runs all lanes belong to the calling thread.
using Lane = uint16_t;
constexpr Lane kMainLane = 0;
// For leaf accumulation in a run that hands nothing over, off the device of all other nodes. The host does it
// in another queue, so it must not disturb the order of ties in the main lane.
constexpr Lane kAsideLane = 1;

class DevicePlan {
 public:
  // `home`: the device that the calling thread is the worker of.
  DevicePlan(const Plan& plan, Threads threads, std::optional<c10::Device> home);

  // Whether other threads take part.
  bool hands_over() const { return !devices_.empty(); }
  // Of the lanes 1, 2 ...
  const std::vector<c10::Device>& devices() const { return devices_; }
  // For a lane without a worker: the caller runs its nodes.
  void give_to_caller(Lane lane);
  // The type of the devices.
  c10::DeviceType type() const { return type_; }

  Lane lane_of(uint32_t node) const { return lanes_.empty() ? kMainLane : lanes_[node]; }

 private:
  using Devices = std::vector<c10::Device>;  // of each node

  void put_aside(const Devices& of_nodes, c10::Device main_device);
  void hand_over(const Devices& of_nodes, std::optional<c10::Device> home);
  Lane lane_for(c10::Device device);

  c10::DeviceType type_ = c10::kCPU;
  std::vector<Lane> lanes_;  // of each node; empty: all on the main lane
  std::vector<c10::Device> devices_;
};

}  // namespace overdrive::engine
