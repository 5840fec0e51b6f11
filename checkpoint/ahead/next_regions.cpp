#include "checkpoint/ahead/next_regions.h"

#include <queue>
#include <unordered_set>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// Nodes looked at in one go. Behind so many others the next region is far away.
constexpr size_t kMostNodes = 2000;

std::vector<AheadRegion*> regions_after(base::Node& from, int64_t count) {
  std::priority_queue<std::pair<uint64_t, base::Node*>> ready;
  std::unordered_set<base::Node*> seen;
  const auto go_on = [&](base::Node& node) {
    for (const base::Edge& edge : node.next_edges()) {
      base::Node* next = edge.function.get();
      if (next != nullptr && seen.insert(next).second) ready.emplace(next->sequence_nr(), next);
    }
  };
  std::vector<AheadRegion*> found;
  go_on(from);
  while (!ready.empty() && seen.size() < kMostNodes && static_cast<int64_t>(found.size()) < count) {
    base::Node& node = *ready.top().second;
    ready.pop();
    if (auto* region = dynamic_cast<AheadNode*>(&node)) found.push_back(&region->ahead_region());
    go_on(node);
  }
  return found;
}

}  // namespace

NextRegions::NextRegions(base::Node& now, const AheadRegion& region) {
  for (AheadRegion* next : regions_after(now, region.reach())) {
    switch (next->where()) {
      case AheadRegion::Where::kInItsTurn:
        break;
      case AheadRegion::Where::kOnItsThread:
        if (next->device() == region.device()) others_.push_back(next);
        break;
      case AheadRegion::Where::kAnywhere:
        next->begin_elsewhere();
        break;
    }
  }
}

void NextRegions::run_the_others() {
  for (AheadRegion* next : others_) next->run_here();
}

}  // namespace overdrive::checkpoint
