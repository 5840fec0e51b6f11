// Hooks of saved tensors that come from elsewhere, such as Python's saved_tensors_hooks: counted for as long as
// they live, and described as an auxiliary span to whoever listens. The wrapper passes every call on. Any
// thread.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace overdrive::engine {

// Null stays null.
std::unique_ptr<torch::autograd::SavedVariableHooks> counted_and_described(
    std::unique_ptr<torch::autograd::SavedVariableHooks> hooks);

}  // namespace overdrive::engine
