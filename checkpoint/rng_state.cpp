#include "checkpoint/rng_state.h"

#include "engine/base/no_destructor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace overdrive::checkpoint {

namespace {

at::Tensor state_of(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// States are byte tensors on the CPU, whatever the device; no operator is needed, so no mode is in the way.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// A region that runs again may hold another that does, so a thread may take it twice.
std::recursive_mutex& replay_mutex() {
  static base::NoDestructor<std::recursive_mutex> mutex;
  return *mutex;
}

// Null where the device has none.
std::optional<at::Generator> generator_of(const at::Device& device) {
  if (device.is_cpu()) return at::detail::getDefaultCPUGenerator();
  if (at::getAccelerator() != device.type()) return std::nullopt;
  return at::globalContext().defaultGenerator(device);
}

}  // namespace

RngState RngState::of_devices_in_use(const std::vector<at::Tensor>& tensors) {
  RngState state;
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.device().is_cpu()) continue;
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  for (const at::Device& device : devices) state.add(device);
  return state;
}

void RngState::add(const at::Device& device) {
  if (auto generator = generator_of(device)) generators_.push_back({device, *generator, state_of(*generator)});
}

void RngState::keep_what_moved() {
  std::erase_if(generators_,
                [](const State& before) { return same_bytes(before.state, state_of(before.generator)); });
}

bool RngState::has_cpu() const {
  return std::any_of(generators_.begin(), generators_.end(),
                     [](const State& state) { return state.device.is_cpu(); });
}

bool RngWatch::have_moved() const {
  RngState moved = before_;
  moved.keep_what_moved();
  return !moved.empty();
}

RngReplay::RngReplay(const RngState& state) {
  if (state.empty()) return;
  alone_ = std::unique_lock(replay_mutex());
  for (const auto& [device, generator, before] : state.generators_) {
    outer_.push_back({device, generator, state_of(generator)});
  }
  for (const auto& moved : state.generators_) set_state(moved.generator, moved.state);
}

RngReplay::~RngReplay() {
  for (const auto& outer : outer_) set_state(outer.generator, outer.state);
}

}  // namespace overdrive::checkpoint
