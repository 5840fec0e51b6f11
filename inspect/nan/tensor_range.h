// The range of a tensor's values. Dispatches no operator for an ordinary CPU tensor. Any thread.
#pragma once

#include "inspect/kernels/value_range.h"

#include <ATen/core/Tensor.h>

namespace overdrive::inspect {

// Of an undefined tensor, and of one without floating-point numbers: empty and finite. A complex number counts
// as two. A tensor on an accelerator is waited for. Sparse, nested and wrapped tensors are not looked at.
ValueRange range_of(const at::Tensor& tensor);

}  // namespace overdrive::inspect
