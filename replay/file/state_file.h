// A dict of tensors in the form of torch.save(): written so that Python's torch.load() takes it with
// weights_only=True. Read are such files, state_dict()s, checkpoints, and what torch::save() wrote of a module.
// Functions of bytes; any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace overdrive::replay {

using NamedState = std::vector<std::pair<std::string, at::Tensor>>;

std::string state_to_bytes(const NamedState& state);
// Throws where the bytes hold no tensors by name.
NamedState state_from_bytes(const std::string& bytes);

}  // namespace overdrive::replay
