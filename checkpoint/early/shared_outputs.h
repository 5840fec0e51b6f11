// Outputs of a region's first run that share memory with each other, or with a tensor that the function
// captures. The graph does not know of the sharing: a write to one output would be missing from the gradient of
// the other. A value; noted after the first run, checked in the backward.
#pragma once

#include "engine/base/torch_types.h"

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

class SharedOutputs {
 public:
  SharedOutputs() = default;
  explicit SharedOutputs(const std::vector<at::Tensor>& outputs);

  // Throws where one of the outputs was changed in place meanwhile.
  void check(const std::string& region) const;

 private:
  void add(size_t index, const at::Tensor& output);

  struct Output {
    size_t index;
    c10::VariableVersion version;
    uint32_t noted;
  };
  std::vector<Output> outputs_;
};

}  // namespace overdrive::checkpoint
