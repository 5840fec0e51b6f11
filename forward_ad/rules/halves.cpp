#include "forward_ad/rules/halves.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/alignment.h>
#include <c10/util/accumulate.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace overdrive::forward_ad {

namespace {

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
