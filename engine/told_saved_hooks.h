// Hooks of saved tensors that come from elsewhere, such as Python's saved_tensors_hooks, told as side work to
// whoever looks. The wrapper passes every call on. Any thread.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace overdrive::engine {

// `hooks` themselves, or null, where nobody looks.
std::unique_ptr<torch::autograd::SavedVariableHooks> tell_of(
    std::unique_ptr<torch::autograd::SavedVariableHooks> hooks);

}  // namespace overdrive::engine
