#include "forward_ad/layers/dual_layout.h"

#include "forward_ad/layers/layers.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/alignment.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace overdrive::forward_ad {
namespace {
// Whether memory begins at the same offset and has the same size, because a view of the tangent is made with
// the numbers of a view of the primal. Wrappers know the state when they were made, so the plain tensors are
// asked. The size does not count on a vmap layer.
bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor plain_a = innermost_of(a), plain_b = innermost_of(b);
  if (plain_a.storage_offset() != plain_b.storage_offset()) return false;
  if (is_batched(a) || is_batched(b) || !plain_a.has_storage() || !plain_b.has_storage()) return true;
  return plain_a.storage().nbytes() == plain_b.storage().nbytes();
}

// Also true of some tensors with interleaved dimensions that do not; they are copied in vain.
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

// Each half owns the memory together with the other.
using Memory = std::shared_ptr<c10::DataPtr>;

void release_half(void* memory) { delete static_cast<Memory*>(memory); }

size_t bytes_of(c10::IntArrayRef sizes, c10::ScalarType type) {
  return static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
}

at::Tensor half(const Memory& memory, size_t offset, c10::IntArrayRef sizes, c10::ScalarType type) {
  c10::DataPtr data(static_cast<std::byte*>(memory->get()) + offset, new Memory(memory), &release_half,
                    memory->device());
  // Resizable like any other: LibTorch's allocator then gives it memory of its own.
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                       static_cast<int64_t>(bytes_of(sizes, type)),
                                                       std::move(data), c10::GetCPUAllocator(), true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                               c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                               c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

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

bool Halves::can_have(c10::IntArrayRef sizes, c10::ScalarType type) {
  const size_t bytes = bytes_of(sizes, type);
  return bytes > 0 && bytes % c10::gAlignment == 0;
}

Halves Halves::empty(c10::IntArrayRef sizes, c10::ScalarType type) {
  const size_t bytes = bytes_of(sizes, type);
  auto memory = std::make_shared<c10::DataPtr>(c10::GetCPUAllocator()->allocate(2 * bytes));
  return {half(memory, 0, sizes, type), half(memory, bytes, sizes, type)};
}

bool are_side_by_side(const at::Tensor& first, const at::Tensor& second) {
  return first.is_contiguous() && second.is_contiguous() && first.sizes() == second.sizes() &&
         first.scalar_type() == second.scalar_type() && first.numel() > 0 &&
         static_cast<const std::byte*>(first.const_data_ptr()) + first.nbytes() == second.const_data_ptr();
}

at::Tensor rows_of_both(const at::Tensor& first, const at::Tensor& second, int64_t columns) {
  TORCH_INTERNAL_ASSERT(are_side_by_side(first, second));
  return at::from_blob(const_cast<void*>(first.const_data_ptr()), {2 * first.numel() / columns, columns},
                       first.options());
}

at::Tensor apart(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const bool is_half =
      storage != nullptr && storage->_mutable_data_ptr_no_checks().get_deleter() == &release_half;
  return is_half ? tensor.clone() : tensor;
}

}  // namespace overdrive::forward_ad
