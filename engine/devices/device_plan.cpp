#include "engine/devices/device_plan.h"

#include "engine/host/host_rules.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// Where a node runs. Everything that has no queue of its own counts as the CPU.
c10::Device device_of(Node& node) {
  const c10::Device device = node.device();
  return host::runs_on_caller(device.type()) ? c10::Device(c10::kCPU) : device;
}

void check_device(Node& node, c10::Device device) {
  const auto* guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(device.type())].load();
  TORCH_CHECK(guard != nullptr, "node ", node.name(), " is on ", device,
              ", but nothing in this process provides ", device.type(),
              " devices (no device guard is registered). Is its library loaded?");
  const c10::DeviceIndex count = guard->deviceCount();
  TORCH_CHECK(device.has_index() && device.index() < count, "node ", node.name(), " is on ", device,
              ", but this process sees ", static_cast<int>(count), " ", device.type(), " devices.");
}

bool is_leaf(Node& node) { return host::kind_of(node) == host::NodeKind::kAccumulateGrad; }

}  // namespace

DevicePlan::DevicePlan(const Plan& plan, Threads threads, std::optional<c10::Device> owner_device) {
  std::optional<c10::Device> main_device;
  std::optional<c10::Device> checked;
  bool one_device = true;
  Devices of_nodes;
  of_nodes.reserve(plan.nodes.size());
  for (const PlannedNode& planned : plan.nodes) {
    const c10::Device device = device_of(*planned.node);
    of_nodes.push_back(device);
    if (device.type() != c10::kCPU && device != checked) {
      check_device(*planned.node, device);
      checked = device;
      type_ = device.type();
    }
    if (is_leaf(*planned.node)) continue;
    if (!main_device.has_value()) main_device = device;
    one_device = one_device && device == *main_device;
  }
  // The host's own switch; its queue is then one for all devices, and so is ours.
  const bool may_hand_over =
      threads != Threads::kCaller && c10::AutogradState::get_tls_state().get_multithreading_enabled();
  if (!may_hand_over) return;
  if (threads == Threads::kAuto && one_device) {
    if (main_device.has_value()) use_secondary_queue(of_nodes, *main_device);
    return;
  }
  hand_over(of_nodes, owner_device);
}

void DevicePlan::use_secondary_queue(const Devices& of_nodes, c10::Device main_device) {
  queue_indices_.reserve(of_nodes.size());
  for (const c10::Device& device : of_nodes) {
    queue_indices_.push_back(device == main_device ? kMainQueue : kSecondaryQueue);
  }
}

void DevicePlan::hand_over(const Devices& of_nodes, std::optional<c10::Device> owner_device) {
  queue_indices_.reserve(of_nodes.size());
  for (const c10::Device& device : of_nodes) {
    queue_indices_.push_back(device.type() == c10::kCPU || device == owner_device ? kMainQueue
                                                                                  : queue_for(device));
  }
}

QueueIndex DevicePlan::queue_for(c10::Device device) {
  const auto at = std::find(devices_.begin(), devices_.end(), device);
  const auto queue = static_cast<QueueIndex>(at - devices_.begin() + 1);
  if (at == devices_.end()) devices_.push_back(device);
  return queue;
}

void DevicePlan::give_to_caller(QueueIndex queue) {
  devices_.erase(devices_.begin() + (queue - 1));
  for (QueueIndex& of_node : queue_indices_) {
    if (of_node == queue) {
      of_node = kMainQueue;
    } else if (of_node > queue) {
      --of_node;
    }
  }
  // Nobody is left to hand over to: one queue.
  if (devices_.empty()) queue_indices_.clear();
}

}  // namespace overdrive::engine
