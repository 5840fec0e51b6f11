// The inputs of a region, from its first run to the last. Kept under the rules for tensors that a node saves,
// so an input that is changed in place meanwhile is the usual error. A member of the object that runs the
// region again; any thread may unpack.
#pragma once

#include "checkpoint/region/options.h"
#include "hooks/hooks.h"

#include <algorithm>
#include <vector>

namespace overdrive::checkpoint {

class SavedInputs {
 public:
  explicit SavedInputs(const Tensors& inputs) {
    inputs_.reserve(inputs.size());
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
  }

  // The inputs as they were. Without a node, errors do not name one.
  Tensors unpack(base::Node* node = nullptr) const {
    Tensors tensors;
    tensors.reserve(inputs_.size());
    for (const hooks::SavedTensor& input : inputs_) {
      tensors.push_back(node != nullptr ? input.unpack(*node) : input.unpack());
    }
    return tensors;
  }
  // Whether hooks have packed an input: unpacking it may take another region's recomputation.
  bool have_hooks() const {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [](const hooks::SavedTensor& input) { return input.has_hooks(); });
  }
  // Lets the inputs go. Unpacking them from here on is the error of a second backward.
  void release() {
    for (hooks::SavedTensor& input : inputs_) input.release();
  }

 private:
  std::vector<hooks::SavedTensor> inputs_;
};

}  // namespace overdrive::checkpoint
