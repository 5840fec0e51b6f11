#include "bench/memory_counter.h"

#include <c10/util/Exception.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OVERDRIVE_COUNT_NEW 0  // a sanitizer wants operator new for itself
#else
#define OVERDRIVE_COUNT_NEW 1
#endif

namespace overdrive::bench {

namespace {

// Bytes from operator new alive since counting began, and the most there ever were. Bytes that were allocated
// before may be freed while we count, so `live` may sink below zero.
constinit std::atomic<bool> counting{false};
constinit std::atomic<int64_t> live{0}, peak_of_live{0}, allocations{0};

[[maybe_unused]] void add(int64_t bytes) {
  const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  allocations.fetch_add(1, std::memory_order_relaxed);
  int64_t most = peak_of_live.load(std::memory_order_relaxed);
  while (now > most && !peak_of_live.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

MemoryCounter::MemoryCounter(size_t most_changes) : tensors_(most_changes) {
  TORCH_CHECK(!counting, "memory is being counted already.");
  live = peak_of_live = allocations = 0;
  counting = true;
}
MemoryCounter::~MemoryCounter() { counting = false; }

MemoryPeak MemoryCounter::peak() const {
  return {.tensor_bytes = tensors_.peak(),
          .heap_bytes = OVERDRIVE_COUNT_NEW ? peak_of_live.load() : -1,
          .tensor_allocations = tensors_.allocations(),
          .heap_allocations = allocations,
          .kept_bytes = tensors_.now() + live};
}

}  // namespace overdrive::bench

#if OVERDRIVE_COUNT_NEW
// The array and nothrow forms of the C++ library end in these two.
void* operator new(size_t bytes) {
  void* address = std::malloc(bytes != 0 ? bytes : 1);
  if (address == nullptr) throw std::bad_alloc();
  if (overdrive::bench::counting.load(std::memory_order_relaxed)) {
    overdrive::bench::add(static_cast<int64_t>(malloc_usable_size(address)));
  }
  return address;
}

void operator delete(void* address) noexcept {
  if (address != nullptr && overdrive::bench::counting.load(std::memory_order_relaxed)) {
    overdrive::bench::live.fetch_sub(static_cast<int64_t>(malloc_usable_size(address)),
                                     std::memory_order_relaxed);
  }
  std::free(address);
}

void operator delete(void* address, size_t) noexcept { operator delete(address); }
#endif
