// Tells the tensors that most gradients are, dense and on the CPU, from all the others, by one
// comparison. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::engine {

// An uninitialised one of float. Made without the dispatcher, whatever mode the thread is in.
at::Tensor make_ordinary_tensor(at::IntArrayRef sizes);

// The dispatch keys of an ordinary dense CPU tensor.
uint64_t ordinary_keys();

// Not a subclass or a functorch wrapper, not sparse, nested, mkldnn, zero, conjugated or negated.
inline bool is_ordinary(const c10::TensorImpl& tensor) {
  return tensor.key_set().raw_repr() == ordinary_keys();
}

}  // namespace overdrive::engine
