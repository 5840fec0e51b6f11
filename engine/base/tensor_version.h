// How often a tensor was written to, for comparing before and after. Any thread may ask.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace overdrive::base {

// 0 where nobody counts: undefined, or made in inference mode.
inline int64_t version_of(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference() ? 0 : tensor._version();
}

}  // namespace overdrive::base
