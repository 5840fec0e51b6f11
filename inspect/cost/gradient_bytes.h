// The bytes of a node's gradients: the number of elements times the size of one, of the defined tensors that
// have memory of their own. A pure function of the tensors.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::inspect {

inline int64_t bytes_of(const base::variable_list& gradients) {
  int64_t bytes = 0;
  for (const at::Tensor& gradient : gradients) {
    const c10::TensorImpl& tensor = *gradient.unsafeGetTensorImpl();
    if (!gradient.defined() || !tensor.has_storage() || tensor.has_symbolic_sizes_strides()) continue;
    bytes += tensor.numel() * static_cast<int64_t>(tensor.dtype().itemsize());
  }
  return bytes;
}

}  // namespace overdrive::inspect
