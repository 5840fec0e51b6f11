// A loop over a gradient, in place where nobody else sees it. For the elementwise families alone; no state, any
// thread.
#pragma once

#include "engine/host/gradient_tensors.h"
#include "engine/kernels/elementwise.h"
#include "engine/native_nodes/table.h"

#include <utility>

namespace overdrive::engine::native_nodes {

// Writes `kernel(out, gradient, n)` over the gradient, or into a new tensor when that is still wanted or seen.
template <typename Kernel>
at::Tensor map(at::Tensor& gradient, bool last_use, Kernel&& kernel) {
  const int64_t n = gradient.numel();
  if (last_use && may_be_written(gradient)) {
    for_type_of(gradient, [&](auto zero) {
      auto* data = mutable_data_of<decltype(zero)>(gradient);
      kernel(data, data, n);
    });
    return std::move(gradient);
  }
  at::Tensor out = new_tensor(gradient.sizes(), gradient);
  for_type_of(gradient, [&](auto zero) {
    using T = decltype(zero);
    kernel(mutable_data_of<T>(out), data_of<T>(gradient), n);
  });
  return out;
}

inline bool has_nan(const at::Tensor& t) {
  bool found = false;
  for_type_of(t, [&](auto zero) {
    const auto* data = data_of<decltype(zero)>(t);
    found = kernels::loops(data).has_nan(data, t.numel());
  });
  return found;
}

}  // namespace overdrive::engine::native_nodes
