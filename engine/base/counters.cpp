#include "engine/base/counters.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <pthread.h>

#include <array>
#include <new>

namespace overdrive::base {
namespace {

// Place 0 is never read. A counter that finds no free place counts there.
constexpr size_t kNamed = 64;
constexpr size_t kCounters = kNamed + kNativeTypes * kNativeOutcomes;

// Written by one thread only, so an increment is a relaxed load and a store: the compiler emits
// no lock prefix, and a reader sees a value that was right a moment ago.
struct alignas(64) Block {
  std::array<std::atomic<uint64_t>, kCounters> counts{};
  Block* next = nullptr;      // guarded by the registry's mutex
  Block** to_here = nullptr;  // the same
};

class Registry {
 public:
  Registry()
      : has_key_(pthread_key_create(&thread_end_, [](void* block) { retire(static_cast<Block*>(block)); }) ==
                 0) {}

  static Registry& get() {
    static base::NoDestructor<Registry> registry;
    return *registry;
  }

  // Null for want of memory.
  Block* new_block() OVERDRIVE_EXCLUDES(mutex_) {
    auto* block = new (std::nothrow) Block;
    if (block == nullptr) return nullptr;
    {
      base::MutexLock lock(mutex_);
      block->next = blocks_;
      block->to_here = &blocks_;
      if (blocks_) blocks_->to_here = &block->next;
      blocks_ = block;
    }
    // Without a key, as when the process has used up all that there are, the block of a thread that has ended
    // stays on the list. Its counts are right, too.
    if (has_key_) pthread_setspecific(thread_end_, block);
    return block;
  }

  // A second thread that counts with a new counter finds the place that the first one gave it.
  size_t place_of(Counter& counter, std::atomic<size_t>& place) OVERDRIVE_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    if (place.load(std::memory_order_relaxed) == 0 && num_named_ + 1 < kNamed) {
      named_[num_named_++] = &counter;
      place.store(num_named_, std::memory_order_relaxed);
    }
    return place.load(std::memory_order_relaxed);
  }

  void add_forwarded(const char* reason) OVERDRIVE_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    ++forwarded_[reason];
  }

  CounterTotals totals() OVERDRIVE_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    const Counts now = sum();
    CounterTotals totals;
    totals.forwarded = forwarded_;
    for (size_t i = 0; i < num_named_; ++i) {
      const bool done = named_[i]->kind() == Counter::Kind::kDone;
      totals.counts[named_[i]->name()] = now[i + 1] - (done ? at_reset_[i + 1] : 0);
    }
    for (size_t i = kNamed; i < kCounters; ++i) totals.native[i - kNamed] = now[i] - at_reset_[i];
    return totals;
  }

  // The blocks belong to their threads and are not written here: what they hold now becomes the
  // new zero.
  void reset() OVERDRIVE_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    at_reset_ = sum();
    forwarded_.clear();
  }

 private:
  using Counts = std::array<uint64_t, kCounters>;

  static void retire(Block* block);

  Counts sum() OVERDRIVE_REQUIRES(mutex_) {
    Counts sum = retired_;
    for (Block* block = blocks_; block; block = block->next) {
      for (size_t i = 0; i < kCounters; ++i) sum[i] += block->counts[i].load(std::memory_order_relaxed);
    }
    return sum;
  }

  pthread_key_t thread_end_{};  // another library's, unless has_key_
  const bool has_key_;
  // The work of its parent is not the child's.
  base::ProcessMutex mutex_{"counters", [] { get().reset(); }};
  // Of threads that live, and the sums of those that ended.
  Block* blocks_ OVERDRIVE_GUARDED_BY(mutex_) = nullptr;
  Counts retired_ OVERDRIVE_GUARDED_BY(mutex_){};
  Counts at_reset_ OVERDRIVE_GUARDED_BY(mutex_){};
  std::array<const Counter*, kNamed> named_ OVERDRIVE_GUARDED_BY(mutex_){};  // by place, from 1 on
  size_t num_named_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> forwarded_ OVERDRIVE_GUARDED_BY(mutex_);
};

// A raw pointer, because a thread-local with a destructor would be gone when a tensor that dies
// later on the same thread counts something. The pthread key's destructor runs after those of
// all thread-locals; should it run too early all the same, the thread gets another block.
constinit thread_local Block* this_threads_block = nullptr;

void Registry::retire(Block* block) {
  this_threads_block = nullptr;
  Registry& registry = get();
  {
    base::MutexLock lock(registry.mutex_);
    for (size_t i = 0; i < kCounters; ++i) {
      registry.retired_[i] += block->counts[i].load(std::memory_order_relaxed);
    }
    *block->to_here = block->next;
    if (block->next) block->next->to_here = block->to_here;
  }
  delete block;
}

}  // namespace

namespace {
// Counts nothing for want of memory: destructors count, too.
void add(size_t place, uint64_t n) {
  Block* block = this_threads_block;
  if (!block) [[unlikely]] {
    block = this_threads_block = Registry::get().new_block();
    if (block == nullptr) return;
  }
  std::atomic<uint64_t>& counter = block->counts[place];
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}
}  // namespace

void count(Counter& which, int64_t n) {
  size_t place = which.place_.load(std::memory_order_relaxed);
  if (place == 0) [[unlikely]]
    place = Registry::get().place_of(which, which.place_);
  add(place, static_cast<uint64_t>(n));
}
void count_native(size_t type, size_t outcome) { add(kNamed + type * kNativeOutcomes + outcome, 1); }

void count_forwarded(const char* reason) { Registry::get().add_forwarded(reason); }
CounterTotals counter_totals() { return Registry::get().totals(); }
void reset_counters() { Registry::get().reset(); }

}  // namespace overdrive::base
