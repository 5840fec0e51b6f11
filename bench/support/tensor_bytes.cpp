#include "bench/support/tensor_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

namespace overdrive::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Its size stands in front of every block, in so many bytes that the alignment which kernels expect is kept.
constexpr size_t kHeader = 64;
constexpr uint8_t kPriority = 255;

// Never destroyed: tensors that it handed out may outlive everything.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& get() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &give_back, c10::Device(c10::DeviceType::CPU)};
    // From the allocator below, which tells a profiler of it.
    auto* block = static_cast<char*>(below_.allocate(bytes + kHeader).release_context());
    const auto size = static_cast<int64_t>(bytes);
    std::memcpy(block, &size, sizeof size);
    const int64_t now = alive.fetch_add(size, std::memory_order_relaxed) + size;
    allocations.fetch_add(1, std::memory_order_relaxed);
    int64_t most = peak.load(std::memory_order_relaxed);
    while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
    record(block + kHeader, size);
    // The context is the address, as copy-on-write and raw_allocate() want it.
    return {block + kHeader, block + kHeader, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { below_.copy_data(to, from, bytes); }

  void stand_in_front() {
    if (standing_++ == 0) c10::SetAllocator(c10::DeviceType::CPU, this, kPriority);
  }
  void step_aside() {
    if (--standing_ == 0) c10::SetAllocator(c10::DeviceType::CPU, &below_, kPriority);
  }

  void keep_changes(size_t most) {
    const std::lock_guard lock(mutex_);
    changes_.clear();
    changes_.reserve(most);
    most_changes_ = most;
    recording_ = most > 0;
    start_ = Clock::now();
  }
  std::vector<TensorBytes::Change> changes() {
    const std::lock_guard lock(mutex_);
    return changes_;
  }

  std::atomic<int64_t> alive{0}, peak{0}, allocations{0};

 private:
  CountingAllocator() : below_(*c10::GetAllocator(c10::DeviceType::CPU)) {
    TORCH_CHECK(below_.raw_deleter() != nullptr, "the CPU allocator of this process cannot be counted.");
  }

  static void give_back(void* data) {
    if (data == nullptr) return;
    CountingAllocator& self = get();
    char* block = static_cast<char*>(data) - kHeader;
    int64_t size = 0;
    std::memcpy(&size, block, sizeof size);
    self.alive.fetch_sub(size, std::memory_order_relaxed);
    self.record(data, -size);
    self.below_.raw_deleter()(block);
  }

  void record(const void* memory, int64_t bytes) {
    if (!recording_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (changes_.size() >= most_changes_) return;
    changes_.push_back({std::chrono::duration<double>(Clock::now() - start_).count(), memory, bytes});
  }

  c10::Allocator& below_;
  int standing_ = 0;  // of the thread that measures
  std::atomic<bool> recording_{false};
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<TensorBytes::Change> changes_;  // has its room from the start
  size_t most_changes_ = 0;
  Clock::time_point start_;
};

}  // namespace

TensorBytes::TensorBytes(size_t most_changes) {
  CountingAllocator& allocator = CountingAllocator::get();
  allocator.stand_in_front();
  alive_before_ = allocator.alive;
  allocator.peak = alive_before_;
  allocator.allocations = 0;
  allocator.keep_changes(most_changes);
}
TensorBytes::~TensorBytes() {
  CountingAllocator::get().keep_changes(0);
  CountingAllocator::get().step_aside();
}

int64_t TensorBytes::now() const { return CountingAllocator::get().alive - alive_before_; }
int64_t TensorBytes::peak() const { return CountingAllocator::get().peak - alive_before_; }
void TensorBytes::restart_peak() { CountingAllocator::get().peak = CountingAllocator::get().alive.load(); }
int64_t TensorBytes::allocations() const { return CountingAllocator::get().allocations; }
std::vector<TensorBytes::Change> TensorBytes::changes() const { return CountingAllocator::get().changes(); }

}  // namespace overdrive::bench
