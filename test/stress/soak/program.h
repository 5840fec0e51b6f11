// Small random programs whose backward can be run on any engine: plain graphs, backwards inside hooks,
// hooks that throw. A pure function of the seed; any thread may run one.
#pragma once

#include <torch/csrc/autograd/engine.h>

#include <cstdint>
#include <string>
#include <vector>

namespace overdrive::soak {

struct Outcome {
  std::vector<at::Tensor> gradients;  // of the leaves; undefined where there is none
  std::string error;                  // its message, "" when there was none
};

// Builds program `seed` and runs its backward on `engine`; a null `engine` means whichever is the default when
// each backward begins.
Outcome run_program(uint64_t seed, torch::autograd::Engine* engine);

// "" when both are the same, bit for bit, else what differs.
std::string difference(const Outcome& stock, const Outcome& other);

// Graphs of this folder that are alive now.
int64_t live_graphs();

}  // namespace overdrive::soak
