// Questions to glibc's malloc, and its settings: whether it is this process's malloc, and its three thresholds.
// Any thread; the thresholds belong to the process. Leaves the choice of their values to the caller.
#pragma once

#include <cstddef>

namespace overdrive::base {

// Of glibc's heaps, in bytes. A block of at least `mmap` bytes that finds no free place gets a mapping of its
// own, which goes back to the system when the block is freed. When `trim` bytes are free at the top of a heap,
// all but `top_pad` of them go back; a heap that grows takes `top_pad` bytes more than it needs.
struct HeapThresholds {
  size_t mmap = 0;
  size_t trim = 0;
  size_t top_pad = 0;
};

// glibc raises its mmap threshold to the largest mapping that was freed, up to this, and holds its trim
// threshold at twice that. It stops doing so for good when a program sets any of the three.
constexpr size_t kLargestLearnedMmapThreshold = size_t{32} << 20;

// False where the program, or a library that was preloaded into it, brings an allocator of its own.
bool malloc_is_glibcs();

// Whether the environment of this process sets something of glibc's malloc (MALLOC_TRIM_THRESHOLD_,
// GLIBC_TUNABLES).
bool environment_tunes_malloc();

// The thresholds that glibc has learned so far. Asks by allocating, on a thread of its own whose heap is empty,
// without touching the blocks: about 0.2 ms. Throws std::system_error when no thread can be started.
HeapThresholds learned_heap_thresholds();

// False when glibc did not take one of them. Before glibc 2.35 the mmap threshold is cut to 32 MiB.
bool set_heap_thresholds(const HeapThresholds& thresholds);

// Gives free memory of the heaps back to the system.
void release_free_memory();

}  // namespace overdrive::base
