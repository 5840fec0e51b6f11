// Whether two tensors are the same to the last bit: NaN equals NaN, and -0 differs from +0. Strides are the
// caller's to compare. A pure function of the values, wherever the tensors lie.
#pragma once

#include <ATen/ATen.h>

#include <cstring>

namespace overdrive::bench {

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace overdrive::bench
