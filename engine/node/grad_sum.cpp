#include "engine/node/grad_sum.h"

#include "engine/base/counters.h"
#include "engine/host/gradient_tensors.h"
#include "engine/kernels/elementwise.h"

#include <ATen/CachedTensorUtils.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/input_buffer.h>

namespace overdrive::engine {
namespace {

// Nobody but the slot can see this tensor or its memory.
bool is_ours_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1 &&
         tensor.is_non_overlapping_and_dense();
}

// Whether the sum is one loop on this thread.
bool can_loop(const at::Tensor& slot, const at::Tensor& gradient) {
  return is_plain(slot) && is_plain(gradient) && same_sizes_and_type(slot, gradient) && !is_large(slot.numel());
}

// `out` is the slot or a new tensor of its sizes.
void add_by_loop(const at::Tensor& out, const at::Tensor& slot, const at::Tensor& gradient) {
  for_type_of(slot, [&](auto zero) {
    using T = decltype(zero);
    kernels::loops<T>().add(mutable_data_of<T>(out), data_of<T>(slot), data_of<T>(gradient), slot.numel());
  });
}

// The sum in place, with the version that an operator in place would leave.
bool add_in_place(at::Tensor& slot, const at::Tensor& gradient) {
  if (!can_loop(slot, gradient) || slot.storage().is_alias_of(gradient.storage())) return false;
  add_by_loop(slot, slot, gradient);
  slot.unsafeGetTensorImpl()->bump_version();
  return true;
}

// The host writes the sum into a tensor that a wrapper in Python, or a list of tensors that CUDA graphs keep,
// owns beside the slot.
bool host_may_write(const at::Tensor& slot) {
  return slot.storage().use_count() == 1 && (has_python_object(slot) || at::caching::is_cached_tensor(slot));
}

// The sum in a new tensor, where others own the slot's.
bool add_apart(at::Tensor& slot, const at::Tensor& gradient) {
  if (!can_loop(slot, gradient) || host_may_write(slot)) return false;
  at::Tensor sum = new_tensor(slot.sizes(), slot);
  add_by_loop(sum, slot, gradient);
  slot = std::move(sum);
  return true;
}

}  // namespace

void add_to_defined_slot(at::Tensor& slot, at::Tensor&& gradient, base::Node* consumer, bool below_autograd) {
  if (!at::GradMode::is_enabled() && is_ordinary(*slot.unsafeGetTensorImpl()) &&
      is_ordinary(*gradient.unsafeGetTensorImpl()) && !c10::impl::dispatch_mode_enabled()) {
    if (is_ours_alone(slot)) {
      if (!below_autograd || !add_in_place(slot, gradient)) slot.add_(gradient);
      return;
    }
    if (below_autograd && add_apart(slot, gradient)) return;
  }
  // Every other case by the host's own rules (which tensor may be written, in which order sparse
  // and dense are added, tensors that CUDA graphs or Python hold).
  count(base::counts::slow_sums);
  torch::autograd::InputBuffer buffer(1);
  buffer.buffer[0] = std::move(slot);
  buffer.add(0, std::move(gradient), std::nullopt, std::nullopt, consumer);
  slot = std::move(buffer.buffer[0]);
}

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
