#include "engine/plan/serial_order.h"

#include "engine/plan/ready_heap.h"

namespace overdrive::engine {
namespace {

struct Ready {
  TaskRank rank;
  uint32_t node;  // NodeTable::kNone: of a backward around the run
};

}  // namespace

// Makes the moves of Run without the nodes.
std::vector<uint32_t> serial_order(const Plan& plan, const WaitingTasks& before) {
  const auto count = static_cast<uint32_t>(plan.nodes.size());
  std::vector<uint32_t> waiting(count);
  for (uint32_t i = 0; i < count; ++i) waiting[i] = plan.nodes[i].waiting;
  std::vector<uint32_t> order;
  order.reserve(count);
  ReadyHeap<Ready> ready;
  for (const TaskRank& rank : before.ranks) ready.tasks().push_back({rank, NodeTable::kNone});
  uint32_t ours = 0;
  const auto make_ready = [&](uint32_t node) {
    ready.push({{before.depth, plan.nodes[node].node->sequence_nr()}, node});
    ++ours;
  };
  make_ready(0);
  while (ours != 0) {
    const uint32_t node = ready.pop().node;
    if (node == NodeTable::kNone) continue;  // of a nested backward that failed
    --ours;
    order.push_back(node);
    if (plan.pruned() && !plan.nodes[node].needed) continue;
    const uint32_t first = plan.nodes[node].first_edge;
    for (uint32_t edge = first; edge < first + plan.num_edges(node); ++edge) {
      const uint32_t target = plan.targets[edge];
      if (target == NodeTable::kNone || --waiting[target] != 0) continue;
      if (plan.nodes[target].may_run) make_ready(target);
    }
  }
  return order;
}

}  // namespace overdrive::engine
