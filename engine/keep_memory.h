// Memory that stays: how much of what a training step frees glibc keeps for the next step, instead of giving it
// back to the system and having every page faulted in again. A setting of the whole process, whichever engine
// runs. Any thread may change it. Without a call Overdrive decides by itself; docs/guide/switching.md says when
// and how.
#pragma once

#include "engine/base/export.h"

#include <cstddef>

namespace overdrive::engine {

// The most that keep_memory() takes: glibc is told by an int.
constexpr size_t kMostKeptMemory = (size_t{1} << 31) - 1;

// From now on at most `bytes` of free memory stay at the top of glibc's heap, beside one heap of 64 MiB for
// each further thread that allocates, and blocks of fewer bytes come from a heap. 0 undoes it: free memory goes
// back to the system, and glibc's thresholds become those of before the first call. glibc adapts them no
// longer, as it never does for a program that has set one.
//
// False, and nothing is changed, where malloc is not glibc's. Throws c10::Error above kMostKeptMemory.
OVERDRIVE_API bool keep_memory(size_t bytes);

}  // namespace overdrive::engine
