// Memory for the results of an operator that allocates them itself: where it asks for a result's memory, it
// gets the place that a replay has for it, and nothing is copied. Installs an allocator around the process's
// one on first use; the allocator asks the one below unless a scope of the calling thread lends. Scopes nest in
// time, never in each other: one per thread. Does not know what an operator is.
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace overdrive::replay {

// An allocation of a call, as the call makes it each time: which one of those of so many bytes.
struct Allocation {
  size_t bytes;
  uint32_t turn;
};

// Notes the allocations that the calling thread makes, up to its end.
class AllocationLog {
 public:
  AllocationLog();
  ~AllocationLog();
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  // The last one at the address; none where memory cannot be lent, because another allocator is in front.
  std::optional<Allocation> of(const void* address) const;

 private:
  friend class LendingAllocator;
  std::vector<std::pair<const void*, size_t>> made_;
};

// Lends memory to the calling thread, up to its end. A tensor on borrowed storage must die before the owner of
// the memory goes, and is counted until then.
class BorrowedStorage {
 public:
  struct Place {
    Allocation allocation;
    void* memory;
  };
  using Places = c10::SmallVector<Place, 8>;
  using Count = std::atomic<int>;

  // `places` and `count` outlive this. The count is that of memory that has not come back.
  BorrowedStorage(const Places& places, Count& count);
  ~BorrowedStorage();
  BorrowedStorage(const BorrowedStorage&) = delete;
  BorrowedStorage& operator=(const BorrowedStorage&) = delete;

 private:
  friend class LendingAllocator;
  void* take(size_t bytes);

  const Places& places_;
  Count& count_;
  // Of each place, the allocations of its size so far.
  c10::SmallVector<uint32_t, 8> seen_;
};

}  // namespace overdrive::replay
