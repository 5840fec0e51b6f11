// Whether a tensor has a tangent of forward mode: on the functorch layer that it is wrapped for, on level 0 if
// it is plain. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::base {

inline bool has_tangent(const at::Tensor& tensor) { return tensor.defined() && tensor._fw_grad(0).defined(); }

}  // namespace overdrive::base
