#include "hooks/packers/large_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <utility>

namespace overdrive::hooks {
namespace {
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;

// A wish: where it is not granted, nothing has changed.
void ask_for_huge_pages(const c10::DataPtr& piece, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(piece.get());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) / kHugePage * kHugePage;
  if (first + kHugePage < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace

// A piece that a tensor has. Goes back when its storage goes.
struct LargeMemory::Borrowed {
  std::shared_ptr<LargeMemory> owner;
  c10::DataPtr piece;
  int64_t bytes;

  static void end(void* borrowed) {
    const std::unique_ptr<Borrowed> self(static_cast<Borrowed*>(borrowed));
    self->owner->give_back(std::move(self->piece), self->bytes);
  }
};

at::Tensor LargeMemory::tensor(at::IntArrayRef sizes, at::ScalarType type) {
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  if (bytes < kLarge) return at::Tensor(at::detail::empty_cpu(sizes, type));
  return on_piece(sizes, c10::contiguous_strides(sizes), type, bytes);
}

at::Tensor LargeMemory::tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  const auto bytes =
      static_cast<int64_t>(at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type)));
  if (bytes < kLarge) return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, type));
  return on_piece(sizes, strides, type, bytes);
}

at::Tensor LargeMemory::on_piece(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                                 int64_t bytes) {
  auto borrowed = std::make_unique<Borrowed>(shared_from_this(), take(bytes), bytes);
  void* const data = borrowed->piece.get();
  c10::DataPtr pointer(data, borrowed.release(), &Borrowed::end, c10::Device(c10::kCPU));
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(bytes),
                                            std::move(pointer), c10::GetCPUAllocator(),
                                            /*resizable=*/true);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(type));
  impl->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(impl));
}

// Only a piece of the very size: training asks for the same again and again, and a larger one would hold more
// than the packer says that it does.
c10::DataPtr LargeMemory::take(int64_t bytes) {
  {
    const base::MutexLock lock(mutex_);
    const auto fits = idle_.find(bytes);
    if (fits != idle_.end()) {
      c10::DataPtr piece = std::move(fits->second);
      idle_bytes_ -= bytes;
      idle_.erase(fits);
      return piece;
    }
  }
  c10::DataPtr piece = c10::GetCPUAllocator()->allocate(static_cast<size_t>(bytes));
  ask_for_huge_pages(piece, bytes);
  return piece;
}

void LargeMemory::give_back(c10::DataPtr piece, int64_t bytes) noexcept {
  std::multimap<int64_t, c10::DataPtr> unused;  // goes without the lock
  try {
    const base::MutexLock lock(mutex_);
    if (bytes > most_idle_bytes_) return;  // `piece` goes with the caller's arguments
    // Sizes that nobody asks for any more make room.
    if (idle_bytes_ + bytes > most_idle_bytes_) {
      unused.swap(idle_);
      idle_bytes_ = 0;
    }
    idle_.emplace(bytes, std::move(piece));
    idle_bytes_ += bytes;
  } catch (...) {  // for want of memory: then it is freed
  }
}

}  // namespace overdrive::hooks
