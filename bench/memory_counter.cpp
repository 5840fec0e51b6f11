#include "bench/memory_counter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OVERDRIVE_COUNT_NEW 0  // a sanitizer wants operator new for itself
#else
#define OVERDRIVE_COUNT_NEW 1
#endif

namespace overdrive::bench {

namespace {

// Bytes alive since counting began, and the most there ever were. What was allocated before may be freed
// while we count, so `live` may sink below zero.
struct Gauge {
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> allocations{0};

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    allocations.fetch_add(1, std::memory_order_relaxed);
    int64_t most = peak.load(std::memory_order_relaxed);
    while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
  }
  void remove(int64_t bytes) { live.fetch_sub(bytes, std::memory_order_relaxed); }
  void restart() {
    live = 0;
    peak = 0;
    allocations = 0;
  }
};

constinit std::atomic<bool> counting{false};
constinit Gauge heap;

// Stands before the CPU allocator. Never destroyed: tensors that it handed out may outlive everything.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& get() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = below_.allocate(bytes);
    void* address = data.release_context();
    remember(address, static_cast<int64_t>(bytes));
    // The context stays the address, as copy-on-write and raw_allocate() want it.
    return {address, address, &CountingAllocator::free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { below_.copy_data(to, from, bytes); }

  // Setting an allocator is for start-up, says c10; here no other thread computes while a counter
  // is built or ends.
  void stand_before() { c10::SetAllocator(c10::DeviceType::CPU, this, kPriority); }
  void step_aside() { c10::SetAllocator(c10::DeviceType::CPU, &below_, kPriority); }

  void record(size_t most_samples) {
    const std::lock_guard lock(mutex_);
    samples_.clear();
    samples_.reserve(most_samples);
    most_samples_ = most_samples;
    start_ = Clock::now();
  }
  std::vector<MemorySample> samples() {
    const std::lock_guard lock(mutex_);
    return samples_;
  }

  Gauge gauge;

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr uint8_t kPriority = 255;

  CountingAllocator() : below_(*c10::GetAllocator(c10::DeviceType::CPU)) {
    TORCH_CHECK(below_.raw_deleter() != nullptr, "the CPU allocator of this process cannot be counted.");
  }

  void remember(void* address, int64_t bytes) {
    if (address == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      sizes_[address] = bytes;
      gauge.add(bytes);
      sample();
    }
  }

  void sample() {
    if (samples_.size() >= most_samples_) return;
    samples_.push_back({std::chrono::duration<double>(Clock::now() - start_).count(), gauge.live});
  }

  static void free(void* address) {
    CountingAllocator& self = get();
    if (address == nullptr) return;
    int64_t bytes = 0;
    {
      const std::lock_guard lock(self.mutex_);
      const auto found = self.sizes_.find(address);
      bytes = found->second;
      self.sizes_.erase(found);
      self.gauge.remove(bytes);
      self.sample();
    }
    self.below_.raw_deleter()(address);
  }

  c10::Allocator& below_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<void*, int64_t> sizes_;
  std::vector<MemorySample> samples_;  // has its room from the start: nothing here may allocate tensors' memory
  size_t most_samples_ = 0;
  Clock::time_point start_;
};

}  // namespace

MemoryCounter::MemoryCounter(size_t most_samples) {
  TORCH_CHECK(!counting, "memory is being counted already.");
  CountingAllocator::get().stand_before();
  CountingAllocator::get().gauge.restart();
  CountingAllocator::get().record(most_samples);
  heap.restart();
  counting = true;
}

MemoryCounter::~MemoryCounter() {
  counting = false;
  CountingAllocator::get().record(0);
  CountingAllocator::get().step_aside();
}

std::vector<MemorySample> MemoryCounter::samples() const { return CountingAllocator::get().samples(); }

MemoryPeak MemoryCounter::peak() const {
  return {.tensor_bytes = CountingAllocator::get().gauge.peak,
          .heap_bytes = OVERDRIVE_COUNT_NEW ? heap.peak.load() : -1,
          .tensor_allocations = CountingAllocator::get().gauge.allocations,
          .heap_allocations = heap.allocations,
          .kept_bytes = CountingAllocator::get().gauge.live + heap.live};
}

}  // namespace overdrive::bench

#if OVERDRIVE_COUNT_NEW
// The array and nothrow forms of the C++ library end in these two.
void* operator new(size_t bytes) {
  void* address = std::malloc(bytes != 0 ? bytes : 1);
  if (address == nullptr) throw std::bad_alloc();
  if (overdrive::bench::counting.load(std::memory_order_relaxed)) {
    overdrive::bench::heap.add(static_cast<int64_t>(malloc_usable_size(address)));
  }
  return address;
}

void operator delete(void* address) noexcept {
  if (address != nullptr && overdrive::bench::counting.load(std::memory_order_relaxed)) {
    overdrive::bench::heap.remove(static_cast<int64_t>(malloc_usable_size(address)));
  }
  std::free(address);
}

void operator delete(void* address, size_t) noexcept { operator delete(address); }
#endif
