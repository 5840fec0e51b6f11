// The signature of a tensor: sizes, type, device and, if asked for, a checksum. Compares a tensor of the first
// run with the same tensor of a later run. A value; keeps nothing of the tensor.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/core/DimVector.h>

#include <optional>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

class TensorSignature {
 public:
  // With `checksum`, also its bits.
  TensorSignature(const at::Tensor& tensor, bool checksum);

  bool operator==(const TensorSignature&) const = default;
  // "Float[2, 3] on cpu"
  std::string text() const;

 private:
  bool defined_ = false;
  at::DimVector sizes_;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  at::Device device_{at::kCPU};
  std::optional<uint64_t> checksum_;
};

std::vector<TensorSignature> signatures_of(const std::vector<at::Tensor>& tensors, bool checksum);

}  // namespace overdrive::checkpoint
