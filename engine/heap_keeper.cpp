#include "engine/heap_keeper.h"

#include "engine/base/control_group.h"
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

size_t own_limit() {
  return std::min<uint64_t>(HeapKeeper::kOwnLimit, base::memory_limit() / HeapKeeper::kOwnPart);
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
  const base::MutexLock lock(mutex_);
  by_program_ = bytes;
  return keep_locked(bytes);
}

bool HeapKeeper::keep_locked(size_t bytes) {
  if (bytes == 0) {
    way_ = Way::kOff;
    return undo();
  }
  if (!set(thresholds(bytes, bytes))) return false;
  way_ = Way::kAsked;
  return true;
}

// See Note [Loader's lock] in install.cpp: malloc_is_glibcs() asks the loader.
void HeapKeeper::begin_install(int mebibytes) {
  {
    const base::MutexLock lock(mutex_);
    if (mebibytes < 0 ? way_ != Way::kUndecided : by_options_ == mebibytes) return;
  }
  const bool glibcs = base::malloc_is_glibcs();
  const bool may_decide = glibcs && !base::environment_tunes_malloc();
  const base::MutexLock lock(mutex_);
  if (mebibytes >= 0) {
    by_options_ = mebibytes;
    if (glibcs) keep_locked(static_cast<size_t>(mebibytes) << 20);
  } else if (way_ == Way::kUndecided) {
    way_ = may_decide ? Way::kLooking : Way::kOff;
  }
}

void HeapKeeper::end_install() {
  const base::MutexLock lock(mutex_);
  const bool by_options = std::exchange(by_options_, -1) >= 0;
  if (!by_program_) {
    undo();
    way_ = Way::kUndecided;
  } else if (by_options) {
    keep_locked(*by_program_);
  }
}

// Waits for nobody: where another thread looks or decides already, one look is enough.
void HeapKeeper::look(uint64_t backwards) {
  if (!mutex_.try_lock()) return;
  look_locked(backwards);
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
    if (!learn()) return;  // the next look tries again
    const size_t limit = own_limit();
    way_ = limit > before_.trim && set(thresholds(before_.mmap, limit)) ? Way::kOwn : Way::kOff;
  } else if (now_.mmap < base::kLargestLearnedMmapThreshold) {
    // The blocks have grown. glibc would have raised its threshold by now, had we not set it.
    set(thresholds(std::min(2 * now_.mmap, base::kLargestLearnedMmapThreshold), now_.trim));
  }
}

bool HeapKeeper::learn() {
  if (has_learned_) return true;
  try {
    before_ = base::learned_heap_thresholds();
  } catch (const std::exception&) {  // no thread to ask glibc from
    return false;
  }
  has_learned_ = true;
  return true;
}

bool HeapKeeper::set(const base::HeapThresholds& wanted) {
  if (!learn()) return false;
  changed_ = true;
  now_ = wanted;
  return base::set_heap_thresholds(wanted);
}

bool HeapKeeper::undo() {
  if (!std::exchange(changed_, false)) return true;
  const bool done = base::set_heap_thresholds(before_);
  base::release_free_memory();
  return done;
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
