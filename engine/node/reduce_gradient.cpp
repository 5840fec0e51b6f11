#include "engine/node/reduce_gradient.h"

#include "engine/host/gradient_tensors.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>

namespace overdrive::engine {

bool can_reduce(const at::Tensor& gradient, at::IntArrayRef sizes) {
  return is_strided(gradient) && at::is_expandable_to(sizes, gradient.sizes());
}

at::Tensor reduce_gradient(at::Tensor&& gradient, at::IntArrayRef sizes, bool below_autograd) {
  if (!below_autograd) return at::sum_to(std::move(gradient), sizes);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::IntArrayRef none;
  if (sizes.empty()) return at::cpu::sum(gradient, none, /*keepdim=*/false, std::nullopt);
  const at::IntArrayRef have = gradient.sizes();
  const size_t leading = have.size() - sizes.size();
  at::DimVector dims;
  for (size_t i = 0; i < have.size(); ++i) {
    if (i < leading || (sizes[i - leading] == 1 && have[i] != 1)) dims.push_back(static_cast<int64_t>(i));
  }
  at::Tensor sum = dims.empty() ? std::move(gradient)
                                : at::cpu::sum(gradient, at::IntArrayRef(dims), /*keepdim=*/true, std::nullopt);
  if (leading == 0) return sum;
  const at::DimVector to(sizes.begin(), sizes.end());
  const auto strides = at::detail::computeStride(sum.sizes(), sum.strides(), to);
  TORCH_INTERNAL_ASSERT(strides.has_value());  // dimensions of size one were dropped
  return view_of(sum, sizes, *strides, sum.storage_offset());
}

}  // namespace overdrive::engine
