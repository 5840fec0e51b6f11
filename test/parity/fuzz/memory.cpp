#include "test/parity/fuzz/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>

namespace overdrive::fuzz {
namespace {

std::atomic<int64_t> now{0};
std::atomic<int64_t> peak{0};
constexpr size_t kHeader = 64;  // keeps the alignment that kernels expect

void give_back(void* data) {
  if (!data) return;
  char* block = static_cast<char*>(data) - kHeader;
  int64_t size = 0;
  std::memcpy(&size, block, sizeof size);
  now.fetch_sub(size, std::memory_order_relaxed);
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    if (n == 0) return {nullptr, nullptr, &give_back, c10::Device(c10::DeviceType::CPU)};
    char* block = static_cast<char*>(c10::alloc_cpu(n + kHeader));
    const auto size = static_cast<int64_t>(n);
    std::memcpy(block, &size, sizeof size);
    const int64_t total = now.fetch_add(size, std::memory_order_relaxed) + size;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < total && !peak.compare_exchange_weak(seen, total)) {
    }
    return {block + kHeader, block + kHeader, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

}  // namespace

void count_memory() {
  static bool once = [] {
    // Never destroyed: tensors in statics give their memory back after main.
    c10::SetCPUAllocator(new CountingAllocator, /*priority=*/200);
    return true;
  }();
  (void)once;
}
int64_t bytes_now() { return now; }
int64_t bytes_peak() { return peak; }
void reset_peak() { peak = now.load(); }

}  // namespace overdrive::fuzz
