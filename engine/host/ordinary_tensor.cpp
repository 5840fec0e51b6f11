#include "engine/host/ordinary_tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>

namespace overdrive::engine {

at::Tensor make_ordinary_tensor(at::IntArrayRef sizes) {
  const c10::InferenceMode off(false);  // inference tensors lack the autograd keys
  return at::Tensor(at::detail::empty_cpu(sizes, at::kFloat));
}

uint64_t ordinary_keys() {
  static const uint64_t keys = make_ordinary_tensor({0}).key_set().raw_repr();
  return keys;
}

}  // namespace overdrive::engine
