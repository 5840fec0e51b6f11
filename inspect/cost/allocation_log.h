// Writes down every allocation and release of a CPU tensor's memory while it lives, with the owner that the
// thread named. One at a time in the process; any thread may allocate. Knows nothing of nodes and operators: an
// owner is a number.
#pragma once

#include "inspect/cost/live_bytes.h"

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace overdrive::inspect {

struct Allocation {
  const void* memory;
  int64_t bytes;  // negative: released
  uint32_t owner;
  uint64_t ticks;  // of c10's approximate clock
};

// The highest moment of a list of allocations.
struct Peak {
  struct Share {
    int64_t bytes = 0;
    uint64_t tensors = 0;
  };
  int64_t bytes = 0;
  size_t at = 0;     // the allocation that reached it
  bool none = true;  // nothing was allocated
  std::map<uint32_t, Share> owners;
};
// Releases of memory that the list does not know are left out.
Peak peak_of(const std::vector<Allocation>& allocations);

// Calls `step` for the first `end` changes that the list knows: (place in the list, owner, bytes, alive after
// it).
template <typename Step>
void replay(const std::vector<Allocation>& allocations, size_t end, Step&& step) {
  std::unordered_map<const void*, const Allocation*> known;
  int64_t alive = 0;
  for (size_t i = 0; i < end; ++i) {
    const Allocation& one = allocations[i];
    const Allocation* whose = &one;
    if (one.bytes > 0) {
      known[one.memory] = &one;
    } else {
      const auto found = known.find(one.memory);
      if (found == known.end()) continue;
      whose = found->second;
      known.erase(found);
    }
    alive += one.bytes;
    step(i, whose->owner, one.bytes, alive);
  }
}

class AllocationLog {
 public:
  // `mark` is added to the owner of an allocation for which `marked` says so. Throws c10::Error where another
  // log lives.
  explicit AllocationLog(bool (*marked)() = nullptr, uint32_t mark = 0);
  ~AllocationLog();
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  // The owner of this thread's allocations from now on; 0 at first.
  static uint32_t& owner();
  std::vector<Allocation> take();

 private:
  LiveBytes live_bytes_;
};

}  // namespace overdrive::inspect
