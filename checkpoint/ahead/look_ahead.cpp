#include "checkpoint/ahead/look_ahead.h"

#include "checkpoint/ahead/ahead_thread.h"

#include <queue>
#include <unordered_set>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// Nodes looked at in one go. Behind so many others the next region is far away.
constexpr size_t kMostNodes = 2000;

std::vector<Recompute*> next_regions(base::Node& from, int64_t count) {
  std::priority_queue<std::pair<uint64_t, base::Node*>> ready;
  std::unordered_set<base::Node*> seen;
  const auto go_on = [&](base::Node& node) {
    for (const base::Edge& edge : node.next_edges()) {
      base::Node* next = edge.function.get();
      if (next != nullptr && seen.insert(next).second) ready.emplace(next->sequence_nr(), next);
    }
  };
  std::vector<Recompute*> found;
  go_on(from);
  while (!ready.empty() && seen.size() < kMostNodes && static_cast<int64_t>(found.size()) < count) {
    base::Node& node = *ready.top().second;
    ready.pop();
    if (auto* region = dynamic_cast<Recompute*>(&node)) found.push_back(region);
    go_on(node);
  }
  return found;
}

}  // namespace

LookAhead::LookAhead(Recompute& now) {
  for (Recompute* next : next_regions(now, now.segment().options().ahead)) {
    Segment& segment = next->segment();
    switch (segment.how_ahead()) {
      case Segment::Ahead::kNo:
        break;
      case Segment::Ahead::kOnItsThread:
        if (segment.device() == now.segment().device()) others_.push_back(next);
        break;
      case Segment::Ahead::kAnywhere:
        if (auto run = segment.order_ahead()) AheadThread::get().order(std::move(run));
        break;
    }
  }
}

void LookAhead::run_the_others() {
  for (Recompute* next : others_) {
    if (const auto run = next->segment().order_ahead()) run->run();
  }
}

}  // namespace overdrive::checkpoint
