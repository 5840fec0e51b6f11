// The rank of a ready node: a deeper nested node runs first, then a node of a later forward operator. A plain
// value; any thread. Leaves ties to ReadyHeap.
#pragma once

#include <cstdint>
#include <limits>

namespace overdrive::engine {

struct TaskRank {
  // The depth of a task of a failed backward. Such a task sorts to the front, where the run drops it.
  static constexpr int32_t kDeadDepth = std::numeric_limits<int32_t>::max();

  int32_t depth = 0;         // the number of backwards around this one
  uint64_t sequence_nr = 0;  // of the node; AccumulateGrad has the largest
};

constexpr bool runs_after(const TaskRank& a, const TaskRank& b) {
  return a.depth == b.depth ? a.sequence_nr < b.sequence_nr : a.depth < b.depth;
}

static_assert(runs_after({0, 9}, {1, 0}), "depth wins over sequence");
static_assert(runs_after({0, 1}, {0, 2}), "later forward ops run first");
static_assert(!runs_after({0, 1}, {0, 1}), "equal ranks are equal");

}  // namespace overdrive::engine
