// Where the random number generators of LibTorch are: a function that runs again has to draw what it drew. Made
// before the first run, cut down to what that run used, put back before each later one. Values, used by one
// thread at a time; who else draws meanwhile is not our business.
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
  // The same generators, as they are now.
  GeneratorStates now() const;

  // Forgets the generators that are still where they were.
  void keep_what_moved();
  bool empty() const { return states_.empty(); }
  // Whether the CPU's is among those that are left.
  bool has_cpu() const;

  void restore() const;

 private:
  struct State {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<State> states_;
};

// A run in between: the generators go where they were, and at the end of the scope back.
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
