#include "inspect/cost/live_bytes.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstring>

namespace overdrive::inspect {

// Its size stands in front of every block, in so many bytes that the alignment which kernels expect is kept.
// Never destroyed: tensors that it handed out may outlive everything.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& get() {
    static base::NoDestructor<CountingAllocator> allocator;
    return *allocator;
  }

  CountingAllocator() : below_(*c10::GetAllocator(c10::DeviceType::CPU)) {
    TORCH_CHECK(
        below_.raw_deleter() != nullptr,
        "The bytes of CPU tensors cannot be counted in this process: its CPU allocator has no raw deleter.");
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &give_back, c10::Device(c10::DeviceType::CPU)};
    // From the allocator below, which tells a profiler of the block.
    auto* const block = static_cast<char*>(below_.allocate(bytes + kHeader).release_context());
    const auto size = static_cast<int64_t>(bytes);
    std::memcpy(block, &size, sizeof size);
    note(block + kHeader, size);
    // The context is the address, as copy-on-write and raw_allocate() want it.
    return {block + kHeader, block + kHeader, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { below_.copy_data(to, from, bytes); }

  void enter() OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (objects_++ != 0) return;
    around_ = c10::GetAllocator(c10::DeviceType::CPU);
    c10::SetAllocator(c10::DeviceType::CPU, this, kPriority);
  }
  void leave() OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    // An allocator that the program has set since stays.
    if (--objects_ != 0 || c10::GetAllocator(c10::DeviceType::CPU) != this) return;
    c10::SetAllocator(c10::DeviceType::CPU, around_, kPriority);
  }

 private:
  static constexpr size_t kHeader = 64;
  static constexpr uint8_t kPriority = 255;

  static void note(const void* memory, int64_t bytes) {
    const int64_t now = LiveBytes::alive.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t most = LiveBytes::most.load(std::memory_order_relaxed);
    while (now > most && !LiveBytes::most.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
    if (const LiveBytes::Listener listener = LiveBytes::heard.load(std::memory_order_acquire))
      listener(memory, bytes);
  }

  static void give_back(void* data) {
    if (data == nullptr) return;
    char* const block = static_cast<char*>(data) - kHeader;
    int64_t size = 0;
    std::memcpy(&size, block, sizeof size);
    note(data, -size);
    get().below_.raw_deleter()(block);
  }

  c10::Allocator&
      below_;  // the first that was found, always: two that count could stand in front of each other
  base::ProcessMutex mutex_{"live bytes"};
  int objects_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  c10::Allocator* around_ OVERDRIVE_GUARDED_BY(mutex_) = nullptr;  // what leave() puts back
};

LiveBytes::LiveBytes() { CountingAllocator::get().enter(); }
LiveBytes::~LiveBytes() { CountingAllocator::get().leave(); }

}  // namespace overdrive::inspect
