#include "hooks/packers/large_memory.h"

#include <ATen/EmptyTensor.h>
#include <sys/mman.h>

namespace overdrive::hooks {
namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;

// A wish: where it is not granted, nothing has changed.
at::Tensor on_huge_pages(at::Tensor tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (begin + tensor.nbytes()) / kHugePage * kHugePage;
  if (first + kHugePage < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return tensor;
}

}  // namespace

at::Tensor cpu_memory(at::IntArrayRef sizes, at::ScalarType type) {
  return on_huge_pages(at::Tensor(at::detail::empty_cpu(sizes, type)));
}

at::Tensor cpu_memory(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return on_huge_pages(at::Tensor(at::detail::empty_strided_cpu(sizes, strides, type)));
}

}  // namespace overdrive::hooks
