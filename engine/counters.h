// Where the engine counts what it did: one block a thread, so that counting takes no lock and
// touches no line that another thread writes. stats() sums the blocks.
#pragma once

#include <cstdint>

namespace overdrive::engine {

enum class Count : int {
  kBackwards,
  kNodes,
  kFramesElided,
  kNested,
  kSlowValidations,
  kSlowSums,
  kFreshStacks,
  kThreads,
  kChecked,
  kCheckSkipped,
  kCount_,  // how many there are
};

// Adds n to this thread's counter. Safe at any time, also while the thread or the process ends.
void count(Count which, uint64_t n = 1);

// Counts a call that was given to the previous engine. `reason` is a string literal.
void count_forwarded(const char* reason);

}  // namespace overdrive::engine
