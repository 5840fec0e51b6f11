#include "replay/plan/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace overdrive::replay {

// Largest first, each into the lowest gap between the placed ones that live at the same time.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  MemoryPlan plan{.offsets = std::vector<size_t>(lifetimes.size())};
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const auto rounded = [&](size_t i) {
    return (lifetimes[i].bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  };
  std::vector<size_t> placed;
  std::vector<std::pair<size_t, size_t>> taken;
  for (const size_t i : order) {
    const Lifetime& life = lifetimes[i];
    taken.clear();
    for (const size_t other : placed) {
      if (lifetimes[other].first <= life.last && life.first <= lifetimes[other].last) {
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + rounded(other));
      }
    }
    std::sort(taken.begin(), taken.end());
    size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + rounded(i) <= begin) break;
      offset = std::max(offset, end);
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + rounded(i));
    placed.push_back(i);
  }
  return plan;
}

}  // namespace overdrive::replay
