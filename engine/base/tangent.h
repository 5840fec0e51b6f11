// Whether a tensor has a tangent of forward mode: on its functorch layer if it is wrapped, on level 0 if it is
// plain. No state; any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::base {

inline bool has_tangent(const at::Tensor& tensor) { return tensor.defined() && tensor._fw_grad(0).defined(); }

}  // namespace overdrive::base
