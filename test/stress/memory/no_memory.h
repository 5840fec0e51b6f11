// Memory that cannot be had, at a chosen moment: the n-th allocation fails, once. The program that links this
// file has its operator new, realloc() and posix_memalign(). Any thread allocates; one thread arms. Leaves to
// the tests which work is tried, and what must hold afterwards.
#pragma once

#include <cstdint>

namespace overdrive::test {

enum class Memory {
  // Blocks that the code of Overdrive or of the test asks for: operator new, and the tables of a plan. Not
  // those
  // of LibTorch's code, which restores thread-local state in destructors and ends the process there.
  kOfObjects,
  kOfTensors,  // the memory of tensors on the CPU, whoever asks
};

// While one lives, the n-th allocation (from 1) fails.
class NoMemory {
 public:
  NoMemory(Memory which, int64_t nth);
  ~NoMemory();
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

  static bool happened();
};

// Blocks of operator new that nobody has freed.
int64_t live_blocks();

}  // namespace overdrive::test
