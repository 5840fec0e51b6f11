// Where the memories of a program that die in it lie: in one arena, or in memory that lives on and is not
// written before they are dead. A function of their lifetimes; any thread. Allocates nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace overdrive::replay {

// First and last operator that use it, both counted, and its size.
struct Lifetime {
  int first;
  int last;
  size_t bytes;
};

// Memory that the step leaves behind, as a gradient: nobody's before the operator that makes it. It begins at a
// multiple of kArenaAlignment.
struct Room {
  int first;
  size_t bytes;
};

struct MemoryPlan {
  struct Place {
    // Index of a room; -1 for the arena.
    int room;
    // A multiple of kArenaAlignment.
    size_t offset;
  };
  // Of each memory in turn.
  std::vector<Place> places;
  // Of the arena.
  size_t bytes = 0;
};

// LibTorch's own allocator aligns to 64 bytes. Kernels of vendors may choose by an address modulo 64, so a
// replay keeps what eager has.
constexpr size_t kArenaAlignment = 64;

// Whether two lifetimes, or a lifetime and the room behind the last of them, shall not share memory although
// they are not there at once: the second would have to wait for the first, and need not otherwise.
using KeptApart = std::function<bool(int lifetime, int other)>;

// `apart` is a wish: it counts where the arena does not grow beyond the limit. Empty: there is none.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, const std::vector<Room>& rooms,
                       const KeptApart& apart = {}, size_t limit = std::numeric_limits<size_t>::max());

}  // namespace overdrive::replay
