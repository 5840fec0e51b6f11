// Which ready node runs first: the deeper nested one, then the one whose forward op came later.
// A plain value without threads; ties are settled by ReadyHeap.
#pragma once

#include <cstdint>
#include <limits>

namespace overdrive::engine {

struct TaskRank {
  // A task of a backward that failed: sorted to the front, where it is dropped.
  static constexpr int32_t kDeadDepth = std::numeric_limits<int32_t>::max();

  int32_t depth = 0;         // how many backwards this one is nested in
  uint64_t sequence_nr = 0;  // of the node; AccumulateGrad has the largest
};

constexpr bool runs_after(const TaskRank& a, const TaskRank& b) {
  return a.depth == b.depth ? a.sequence_nr < b.sequence_nr : a.depth < b.depth;
}

static_assert(runs_after({0, 9}, {1, 0}), "depth wins over sequence");
static_assert(runs_after({0, 1}, {0, 2}), "later forward ops run first");
static_assert(!runs_after({0, 1}, {0, 1}), "equal ranks are equal");

}  // namespace overdrive::engine
