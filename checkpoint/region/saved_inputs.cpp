#include "checkpoint/region/saved_inputs.h"

#include <algorithm>

namespace overdrive::checkpoint {

SavedInputs::SavedInputs(const Tensors& inputs) {
  inputs_.reserve(inputs.size());
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
}

Tensors SavedInputs::unpack(base::Node* node) const {
  Tensors tensors;
  tensors.reserve(inputs_.size());
  for (const hooks::SavedTensor& input : inputs_) {
    tensors.push_back(node != nullptr ? input.unpack(*node) : input.unpack());
  }
  return tensors;
}

bool SavedInputs::have_hooks() const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [](const hooks::SavedTensor& input) { return input.has_hooks(); });
}

void SavedInputs::release() {
  for (hooks::SavedTensor& input : inputs_) input.release();
}

}  // namespace overdrive::checkpoint
