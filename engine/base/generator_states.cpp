#include "engine/base/generator_states.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace overdrive::base {

namespace {

// A state is a tensor of bytes on the CPU, for every device. No operator runs, so no mode or layer interferes.
at::Tensor state_of(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

GeneratorStates GeneratorStates::of_devices_in_use(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) devices.push_back(tensor.device());
  }
  GeneratorStates result;
  result.add(devices);
  return result;
}

void GeneratorStates::add(const std::vector<c10::Device>& devices) {
  const auto add_one = [this](const at::Generator& generator) {
    const bool known = std::any_of(states_.begin(), states_.end(),
                                   [&](const State& state) { return state.generator == generator; });
    if (!known) states_.push_back({generator, state_of(generator)});
  };
  add_one(at::detail::getDefaultCPUGenerator());
  for (const c10::Device device : devices) {
    // Other devices, such as meta, have no generator.
    if (!device.is_cpu() && at::getAccelerator() == device.type())
      add_one(at::globalContext().defaultGenerator(device));
  }
}

GeneratorStates GeneratorStates::now() const {
  GeneratorStates result;
  for (const auto& [generator, state] : states_) result.states_.push_back({generator, state_of(generator)});
  return result;
}

void GeneratorStates::keep_what_moved() {
  std::erase_if(states_,
                [](const State& before) { return same_bytes(before.state, state_of(before.generator)); });
}

bool GeneratorStates::has_cpu() const {
  const at::Generator& cpu = at::detail::getDefaultCPUGenerator();
  return std::any_of(states_.begin(), states_.end(),
                     [&](const State& state) { return state.generator == cpu; });
}

void GeneratorStates::restore() const {
  for (const auto& [generator, state] : states_) set_state(generator, state);
}

}  // namespace overdrive::base
