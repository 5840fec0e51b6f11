#include "hooks/packers/cpu_buffers.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>

#include <utility>

namespace overdrive::hooks {
namespace {
constexpr int64_t kPage = 4096;

// Page-locked, or ordinary memory where this accelerator's hooks know no other.
at::Tensor new_memory(int64_t bytes, c10::DeviceType accelerator) {
  c10::Allocator* allocator = nullptr;
  try {
    allocator = at::globalContext().getPinnedMemoryAllocator(accelerator);
  } catch (const c10::Error&) {  // it says that it has none
  }
  if (allocator == nullptr) return at::Tensor(at::detail::empty_cpu({bytes}, at::kByte));
  constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
  return at::Tensor(at::detail::empty_generic({bytes}, allocator, kCpu, at::kByte, std::nullopt));
}

}  // namespace

CpuBuffer CpuBuffers::take(int64_t bytes, c10::DeviceType accelerator) {
  const int64_t size = (bytes + kPage - 1) / kPage * kPage;
  {
    const base::MutexLock lock(mutex_);
    const auto fits = idle_.lower_bound(size);
    if (fits != idle_.end() && fits->first <= 2 * size) {
      CpuBuffer buffer = std::move(fits->second);
      idle_bytes_ -= fits->first;
      idle_.erase(fits);
      return buffer;
    }
  }
  return {.bytes = new_memory(size, accelerator), .last_copy = std::nullopt};
}

void CpuBuffers::give_back(CpuBuffer buffer) noexcept {
  const int64_t size = buffer.bytes.numel();
  try {
    const base::MutexLock lock(mutex_);
    if (idle_bytes_ + size > most_idle_bytes_) return;  // freed by whoever called, without the lock
    idle_.emplace(size, std::move(buffer));
    idle_bytes_ += size;
  } catch (...) {  // for want of memory: then it is freed
  }
}

}  // namespace overdrive::hooks
