#include "replay/run/borrowed_storage.h"

#include "engine/base/no_destructor.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

thread_local AllocationLog* log_of_thread = nullptr;
thread_local BorrowedStorage* lender_of_thread = nullptr;

void come_back(void* count) {
  static_cast<BorrowedStorage::Count*>(count)->fetch_sub(1, std::memory_order_release);
}

}  // namespace

// Never destroyed: tensors remember their allocator. An allocator that the program sets later may take the
// context of a block for its address, so nothing is lent unless this one is in front.
class LendingAllocator final : public c10::Allocator {
 public:
  static LendingAllocator& get() {
    static base::NoDestructor<LendingAllocator> allocator;
    static const bool is_set = [] {
      c10::SetCPUAllocator(allocator.get());
      return true;
    }();
    (void)is_set;
    return *allocator;
  }

  LendingAllocator() : below_(*c10::GetCPUAllocator()) {}

  bool is_in_front() const { return c10::GetCPUAllocator() == this; }

  c10::DataPtr allocate(size_t bytes) override {
    if (BorrowedStorage* lender = lender_of_thread; lender && bytes > 0) {
      if (void* memory = lender->take(bytes))
        return {memory, &lender->count_, &come_back, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DataPtr made = below_.allocate(bytes);
    if (AllocationLog* log = log_of_thread; log && bytes > 0) log->made_.emplace_back(made.get(), bytes);
    return made;
  }
  c10::DeleterFnPtr raw_deleter() const override { return below_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { below_.copy_data(to, from, bytes); }

 private:
  c10::Allocator& below_;
};

AllocationLog::AllocationLog() {
  (void)LendingAllocator::get();
  log_of_thread = this;
}

AllocationLog::~AllocationLog() { log_of_thread = nullptr; }

std::optional<Allocation> AllocationLog::of(const void* address) const {
  const auto last =
      std::find_if(made_.rbegin(), made_.rend(), [&](const auto& each) { return each.first == address; });
  if (last == made_.rend()) return std::nullopt;
  const size_t bytes = last->second;
  const auto before =
      std::count_if(last + 1, made_.rend(), [&](const auto& each) { return each.second == bytes; });
  return Allocation{bytes, static_cast<uint32_t>(before)};
}

BorrowedStorage::BorrowedStorage(const Places& places, Count& count) : places_(places), count_(count) {
  seen_.resize(places.size());
  if (LendingAllocator::get().is_in_front()) lender_of_thread = this;
}

BorrowedStorage::~BorrowedStorage() { lender_of_thread = nullptr; }

void* BorrowedStorage::take(size_t bytes) {
  void* found = nullptr;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].allocation.bytes != bytes) continue;
    if (seen_[i]++ == places_[i].allocation.turn) found = places_[i].memory;
  }
  if (found) count_.fetch_add(1, std::memory_order_relaxed);
  return found;
}

}  // namespace overdrive::replay
