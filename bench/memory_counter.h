// Counts the bytes that live in this process: tensors' (through the CPU allocator) and, apart from them,
// everything from operator new. Counts the whole process, so one measurement at a time; any thread
// may allocate meanwhile. Costs nothing while no counter exists.
#pragma once

#include "bench/support/tensor_bytes.h"

#include <cstddef>
#include <cstdint>

namespace overdrive::bench {

struct MemoryPeak {
  // Most bytes alive at once, beyond what was alive when the counter was built.
  int64_t tensor_bytes = 0;
  int64_t heap_bytes = 0;  // -1 where operator new cannot be counted (sanitizer builds)
  int64_t tensor_allocations = 0;
  int64_t heap_allocations = 0;
  // Of both kinds, still alive at the moment of asking.
  int64_t kept_bytes = 0;

  int64_t total() const { return tensor_bytes + (heap_bytes > 0 ? heap_bytes : 0); }
};

class MemoryCounter {
 public:
  // Keeps the first `most_changes` changes of tensors too.
  explicit MemoryCounter(size_t most_changes = 0);
  ~MemoryCounter();
  MemoryCounter(const MemoryCounter&) = delete;
  MemoryCounter& operator=(const MemoryCounter&) = delete;

  MemoryPeak peak() const;
  const TensorBytes& tensors() const { return tensors_; }

 private:
  const TensorBytes tensors_;
};

}  // namespace overdrive::bench
