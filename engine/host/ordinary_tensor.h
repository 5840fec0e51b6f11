// Recognises ordinary tensors, dense and on the CPU, by one comparison: most gradients are of this kind. No
// state; any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::engine {

// An uninitialised ordinary tensor of float, made without the dispatcher in every mode of the thread.
at::Tensor make_ordinary_tensor(at::IntArrayRef sizes);

// The dispatch keys of an ordinary dense CPU tensor.
uint64_t ordinary_keys();

// False for subclasses, functorch wrappers, and sparse, nested, mkldnn, zero, conjugated and negated tensors.
inline bool is_ordinary(const c10::TensorImpl& tensor) {
  return tensor.key_set().raw_repr() == ordinary_keys();
}

}  // namespace overdrive::engine
