#include "inspect/cost/forward_segments.h"

#include <algorithm>
#include <map>
#include <set>

namespace overdrive::inspect {

std::vector<uint64_t> natural_cuts(const StepRecord& step) {
  std::map<uint64_t, std::vector<uint64_t>> targets;  // of each node that is no leaf, by sequence number
  for (const RecordedNode& node : step.nodes) {
    if (node.leaf || node.run != 0) continue;
    auto& to = targets[node.sequence];
    for (const uint32_t next : node.next) {
      if (!step.nodes[next].leaf) to.push_back(step.nodes[next].sequence);
    }
  }
  std::vector<uint64_t> cuts;
  if (targets.empty()) return cuts;
  std::set<uint64_t> inside;  // of operators that make several nodes
  for (const RecordedOp& op : step.ops) {
    for (uint64_t number = op.first_sequence + 1; number < op.end_sequence; ++number) inside.insert(number);
  }
  std::multiset<uint64_t> open;  // targets of later nodes that lie ahead
  for (auto node = targets.rbegin(); node != targets.rend(); ++node) {
    open.erase(node->first);
    const bool one = open.empty();
    open.insert(node->second.begin(), node->second.end());
    const uint64_t after = node->first + 1;
    // All that is open leads here: a cut behind this node.
    if (one && !inside.contains(after)) cuts.push_back(after);
  }
  if (cuts.empty() || cuts.back() != targets.begin()->first) cuts.push_back(targets.begin()->first);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

Segment segment_between(const StepRecord& step, uint64_t first, uint64_t after) {
  Segment segment{.first = first, .last = after - 1, .begin = RecordedNode::kNever, .end = 0};
  for (const RecordedOp& op : step.ops) {
    if (op.first_sequence >= op.end_sequence || op.end_sequence <= first || op.first_sequence >= after)
      continue;
    segment.begin = std::min(segment.begin, op.begin);
    segment.end = std::max(segment.end, op.end);
  }
  return segment;
}

std::string name_of_segment(const SavedBlocks& all, uint64_t first, uint64_t last) {
  const auto op_of = [&](uint64_t number) {
    const RecordedOp* op = all.maker_of(number);
    return op == nullptr ? "?" : op->name;
  };
  return op_of(first) + " #" + std::to_string(first) + " to " + op_of(last) + " #" + std::to_string(last);
}

}  // namespace overdrive::inspect
