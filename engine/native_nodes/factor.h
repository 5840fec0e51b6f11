// The other operand of a product or quotient: a tensor of the gradient's sizes, or one number. Lives as long as
// one call of a function, under the node's mutex.
#pragma once

#include "engine/host/gradient_tensors.h"
#include "engine/host/saved_variable.h"

#include <ATen/core/Scalar.h>

namespace overdrive::engine::native_nodes {

inline bool is_one(const at::Scalar& number) {
  return !number.isSymbolic() && !number.isComplex() && number.toDouble() == 1;
}

struct Factor {
  const at::Tensor* tensor = nullptr;  // null: a number
  double fraction = 0;
  int64_t whole = 0;
  bool is_whole = false;

  bool is_nan() const { return tensor == nullptr && !is_whole && fraction != fraction; }
  // Converted once, as the host converts it.
  template <typename T>
  T number_as() const {
    return is_whole ? static_cast<T>(whole) : static_cast<T>(fraction);
  }

  // Takes the number. False for a symbolic or a complex one.
  bool read(const at::Scalar& number);
  // Takes the operand that the node has saved. False where it is neither such a tensor nor one number, and
  // where the product would be of another type than the gradient.
  bool read(const torch::autograd::SavedVariable& saved, const at::Tensor& gradient);
};

}  // namespace overdrive::engine::native_nodes
