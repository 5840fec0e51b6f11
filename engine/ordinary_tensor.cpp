#include "engine/ordinary_tensor.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

namespace overdrive::engine {

uint64_t ordinary_keys() {
  static const uint64_t keys = [] {
    const c10::InferenceMode off(false);  // inference tensors lack the autograd keys
    return at::empty({0}, at::kFloat).key_set().raw_repr();
  }();
  return keys;
}

}  // namespace overdrive::engine
