#include "engine/heap_keeper.h"

#include "engine/base/no_destructor.h"
#include "engine/keep_memory.h"

#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace overdrive::engine {
namespace {

// How many page faults a backward takes where the keeper begins to hold memory, and how many where it raises
// its limits. One fault is enough to begin, because the number of faults of the same step differs from process
// to process.
constexpr int64_t kFaultsToKeepMemory = 1;
constexpr int64_t kFaultsToRaise = 64;

// The largest M_TOP_PAD: a quarter of the 64 MiB of an arena heap, as threads other than the first have. glibc
// frees such a heap only when the heap before it has more than M_TOP_PAD free, so a larger pad would keep all.
constexpr size_t kMostTopPad = size_t{16} << 20;

base::HeapThresholds thresholds(size_t mmap, size_t limit) {
  return {.mmap = mmap, .trim = limit, .top_pad = std::min(limit / 2, kMostTopPad)};
}

int64_t faults_so_far() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace

HeapKeeper& HeapKeeper::get() {
  static base::NoDestructor<HeapKeeper> instance;
  return *instance;
}

bool HeapKeeper::keep(size_t bytes) {
  if (!base::malloc_is_glibcs()) return false;
  base::MutexLock lock(mutex_);
  if (bytes == 0) {
    way_ = Way::kOff;
    if (!changed_) return true;
    const bool done = set(before_);
    base::release_free_memory();
    return done;
  }
  way_ = Way::kAsked;
  return set(thresholds(bytes, bytes));
}

// See Note [Loader's lock] in install.cpp: malloc_is_glibcs() asks the loader.
void HeapKeeper::decide_by_yourself() {
  {
    const base::MutexLock lock(mutex_);
    if (way_ != Way::kUndecided) return;
  }
  const bool may_decide = base::malloc_is_glibcs() && !base::environment_tunes_malloc();
  const base::MutexLock lock(mutex_);
  if (way_ == Way::kUndecided) way_ = may_decide ? Way::kLooking : Way::kOff;
}

// Waits for nobody: where another thread looks or decides already, one look is enough.
void HeapKeeper::look(uint64_t backwards) {
  if (!mutex_.try_lock()) return;
  try {
    look_locked(backwards);
  } catch (const std::exception&) {  // no thread to ask glibc from: the next look tries again
  }
  mutex_.unlock();
}

size_t HeapKeeper::limit() {
  base::MutexLock lock(mutex_);
  return way_ == Way::kOwn || way_ == Way::kAsked ? now_.trim : 0;
}

// See Note [Memory that stays]. The first look has nothing to compare with.
void HeapKeeper::look_locked(uint64_t backwards) {
  if (way_ != Way::kLooking && way_ != Way::kOwn) return;
  const int64_t now = faults_so_far();
  const int64_t before = std::exchange(faults_, now);
  const int64_t allowed =
      (way_ == Way::kLooking ? kFaultsToKeepMemory : kFaultsToRaise) * static_cast<int64_t>(backwards);
  if (before < 0 || now - before < allowed) return;
  if (way_ == Way::kLooking) {
    const base::HeapThresholds learned = base::learned_heap_thresholds();
    way_ = Way::kOwn;
    set(thresholds(learned.mmap, kOwnLimit));
  } else if (now_.mmap < base::kLargestLearnedMmapThreshold) {
    // The blocks have grown. glibc would have raised its threshold by now, had we not set it.
    set(thresholds(std::min(2 * now_.mmap, base::kLargestLearnedMmapThreshold), kOwnLimit));
  }
}

bool HeapKeeper::set(const base::HeapThresholds& wanted) {
  if (!changed_) before_ = base::learned_heap_thresholds();
  changed_ = true;
  now_ = wanted;
  return base::set_heap_thresholds(wanted);
}

void note_backward_for_heap() {
  constexpr uint64_t kSteady = 64;
  constinit thread_local static uint64_t done = 0, last = 0, next = 8;
  if (++done < next) [[likely]]
    return;
  HeapKeeper::get().look(done - last);
  last = done;
  next = done < kSteady ? 2 * done : done + kSteady;
}

bool keep_memory(size_t bytes) {
  TORCH_CHECK(bytes <= kMostKeptMemory, "keep_memory was asked for ", bytes, " bytes, but glibc takes at most ",
              kMostKeptMemory, ".");
  return HeapKeeper::get().keep(bytes);
}

}  // namespace overdrive::engine
