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
  GeneratorStates result;
  const auto add = [&](const at::Generator& generator) {
    const bool known = std::any_of(result.states_.begin(), result.states_.end(),
                                   [&](const State& state) { return state.generator == generator; });
    if (!known) result.states_.push_back({generator, state_of(generator)});
  };
  add(at::detail::getDefaultCPUGenerator());
  for (const at::Tensor& tensor : tensors) {
    // Other devices, such as meta, have no generator.
    if (tensor.defined() && !tensor.device().is_cpu() && at::getAccelerator() == tensor.device().type()) {
      add(at::globalContext().defaultGenerator(tensor.device()));
    }
  }
  return result;
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
