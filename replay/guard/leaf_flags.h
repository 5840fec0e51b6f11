// Whether leaves that a function may look at require a gradient, and have the type and the sizes that they had.
// Values; made after a recorded call, compared before a call, on its thread. Leaves are named weakly.
#pragma once

#include "replay/record/program.h"

#include <vector>

namespace overdrive::replay {

constexpr const char* kOtherFlag = "requires_grad of a tensor that the step uses was changed";

class LeafFlag {
 public:
  explicit LeafFlag(const at::Tensor& leaf);

  bool has_changed() const { return !weak_.expired() && tensor_->requires_grad() != requires_grad_; }
  // Why the recording does not fit, or null: the flag, or what a function may ask of a tensor beside it.
  const char* difference() const;

 private:
  WeakTensor weak_;
  const c10::TensorImpl* tensor_;
  bool requires_grad_;
  caffe2::TypeMeta type_;
  c10::DimVector sizes_;
  // None of a tensor that is not strided.
  c10::DimVector strides_;
  int64_t offset_ = 0;
};

// The flags of the leaves that a recording knows, as they were when it was made.
class LeafFlags {
 public:
  LeafFlags() = default;
  explicit LeafFlags(const Program& program);
  // Why the recording does not fit, or null.
  const char* difference() const;

 private:
  std::vector<LeafFlag> flags_;
};

}  // namespace overdrive::replay
