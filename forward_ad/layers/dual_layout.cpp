#include "forward_ad/layers/dual_layout.h"

#include "forward_ad/layers/layers.h"

#include <ATen/ops/_new_zeros_with_same_feature_meta.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace overdrive::forward_ad {

namespace {

// Strides, where the memory begins, and how much of it there is, since a view of the tangent is
// made with the numbers of a view of the primal. Wrappers answer as they were when made, so the
// plain tensors are asked for the memory; how much there is does not count on a vmap layer.
bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor plain_a = innermost_of(a), plain_b = innermost_of(b);
  if (plain_a.storage_offset() != plain_b.storage_offset()) return false;
  if (is_batched(a) || is_batched(b) || !plain_a.has_storage() || !plain_b.has_storage()) return true;
  return plain_a.storage().nbytes() == plain_b.storage().nbytes();
}

// Also true of some that do not, where dimensions are interleaved; then a copy is made in vain.
bool may_share_elements(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() < 2) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1) dims.emplace_back(tensor.stride(dim), tensor.size(dim));
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the last element of the dimensions so far
  for (auto [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool is_lazy(const at::Tensor& tensor) { return tensor.is_conj() || tensor.is_neg(); }

}  // namespace

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.layout() != at::kStrided) return true;
  if (a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return same_memory(a, b);
}

at::Tensor primal_that_takes(const at::Tensor& primal, const at::Tensor& tangent) {
  if (same_layout(primal, tangent)) return primal;
  at::Tensor resolved = is_lazy(primal) ? primal.resolve_conj().resolve_neg() : primal;
  return may_share_elements(resolved) ? resolved.clone(at::MemoryFormat::Contiguous) : resolved;
}

at::Tensor with_layout_of(const at::Tensor& primal, const at::Tensor& tangent) {
  if (same_layout(primal, tangent)) return tangent;
  c10::AutoFwGradMode disabled(false);
  return at::_new_zeros_with_same_feature_meta(tangent, primal).copy_(tangent);
}

}  // namespace overdrive::forward_ad
