// The states of LibTorch's random number generators, for a function that must draw the same numbers again. Made
// before the first run, reduced to the generators that the run used, restored before each later run. A value
// for one thread at a time. Leaves draws by other threads to the caller.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/core/Generator.h>

#include <vector>

namespace overdrive::base {

class GeneratorStates {
 public:
  GeneratorStates() = default;

  // The CPU's generator and those of the tensors' devices, as they are now.
  static GeneratorStates of_devices_in_use(const std::vector<at::Tensor>& tensors);
  // Adds the CPU's generator and those of the devices, as they are now, unless they are here already.
  void add(const std::vector<c10::Device>& devices);
  // The same generators, as they are now.
  GeneratorStates now() const;

  // Drops the generators whose state has not changed.
  void keep_what_moved();
  bool empty() const { return states_.empty(); }
  // Whether the CPU's generator is left.
  bool has_cpu() const;

  void restore() const;

 private:
  struct State {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<State> states_;
};

// A scope for a repeated run: sets the generators to `states`, and restores their present states at the end.
class GeneratorsBack {
 public:
  explicit GeneratorsBack(const GeneratorStates& states) : outer_(states.now()) { states.restore(); }
  ~GeneratorsBack() { outer_.restore(); }
  GeneratorsBack(const GeneratorsBack&) = delete;
  GeneratorsBack& operator=(const GeneratorsBack&) = delete;

 private:
  const GeneratorStates outer_;
};

}  // namespace overdrive::base
