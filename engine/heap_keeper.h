// Decides how much free memory glibc keeps for this process, and remembers how to undo it. One object for the
// process, never destroyed; any thread. Leaves to base/glibc_heap how glibc is told.
//
// Note [Memory that stays]: the sequence of large blocks that a step allocates and frees is the same under our
// engine as under stock, but a small block more or less decides which of them lie at the top of glibc's heap.
// What is free there goes back to the system as soon as it exceeds the trim threshold, and comes back a page
// fault at a time in the next step: the number of faults is chaotic, and no order of frees is safe. With the
// trim threshold above what a step frees there are none. The mmap threshold stays as glibc has learned it,
// because a larger one costs memory: the most that an LSTM held rose by 18 % with 32 MiB from the start, and by
// less than 1 % with the learned one. Rejected: an order of our own (there is nothing to order); a pool for the
// backward (the forward faults on).
#pragma once

#include "engine/base/glibc_heap.h"
#include "engine/base/process_mutex.h"

#include <cstdint>

namespace overdrive::engine {

class HeapKeeper {
 public:
  static constexpr size_t kOwnLimit = size_t{256} << 20;  // of what stays by our own decision

  static HeapKeeper& get();

  // What keep_memory() does.
  bool keep(size_t bytes) OVERDRIVE_EXCLUDES(mutex_);

  // Installed with the default: look() may decide, unless the program or the environment has spoken.
  void decide_by_yourself() OVERDRIVE_EXCLUDES(mutex_);

  // Compares the page faults of the process with those at the last look, `backwards` ago.
  void look(uint64_t backwards) OVERDRIVE_EXCLUDES(mutex_);

  // The bytes that may stay at the top of a heap by our doing; 0 when glibc decides.
  size_t limit() OVERDRIVE_EXCLUDES(mutex_);

 private:
  enum class Way {
    kUndecided,  // before the first install()
    kLooking,    // page faults are counted
    kOwn,        // steps took page faults, and the keeper set the thresholds
    kAsked,      // the program or the environment did
    kOff,        // glibc decides
  };

  void look_locked(uint64_t backwards) OVERDRIVE_REQUIRES(mutex_);
  bool set(const base::HeapThresholds& wanted) OVERDRIVE_REQUIRES(mutex_);

  base::ProcessMutex mutex_{"heap keeper"};
  Way way_ OVERDRIVE_GUARDED_BY(mutex_) = Way::kUndecided;
  bool changed_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  base::HeapThresholds before_ OVERDRIVE_GUARDED_BY(mutex_);  // our first change, when there was one
  base::HeapThresholds now_ OVERDRIVE_GUARDED_BY(mutex_);     // as we set them
  int64_t faults_ OVERDRIVE_GUARDED_BY(mutex_) = -1;          // at the last look
};

// Called at the beginning of every backward that is not nested; looks at the 8th, 16th, 32nd and 64th of a
// thread and then at every 64th.
void note_backward_for_heap();

}  // namespace overdrive::engine
