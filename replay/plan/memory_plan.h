// Where the memories of a program that die in it lie in one arena. A function of their lifetimes; any thread.
// Allocates nothing.
#pragma once

#include <cstddef>
#include <vector>

namespace overdrive::replay {

// First and last operator that use it, both counted, and its size.
struct Lifetime {
  int first;
  int last;
  size_t bytes;
};

struct MemoryPlan {
  // Of each memory in turn, a multiple of kArenaAlignment.
  std::vector<size_t> offsets;
  size_t bytes = 0;
};

// LibTorch's own allocator aligns to 64 bytes. Kernels of vendors may choose by an address modulo 64, so a
// replay keeps what eager has.
constexpr size_t kArenaAlignment = 64;

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

}  // namespace overdrive::replay
