// What depends on the pointer that the host's version holds its nodes with. Any thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::test {

template <typename T, typename... Args>
auto make_typed_node(Args&&... args) {
#ifdef OVERDRIVE_SHARED_NODES
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
#else
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
#endif
}

}  // namespace overdrive::test
