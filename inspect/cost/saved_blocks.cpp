#include "inspect/cost/saved_blocks.h"

#include <algorithm>

namespace overdrive::inspect {

SavedBlocks::SavedBlocks(const StepRecord& step) : step_(step) {
  std::unordered_map<const void*, uint32_t> alive;
  for (size_t i = 0; i < step.allocations.size(); ++i) {
    const Allocation& one = step.allocations[i];
    if (one.bytes > 0) {
      alive[one.memory] = static_cast<uint32_t>(blocks_.size());
      at_[one.memory].push_back(static_cast<uint32_t>(blocks_.size()));
      blocks_.push_back({.bytes = one.bytes, .from = i, .last_use = i + 1});
    } else if (const auto found = alive.find(one.memory); found != alive.end()) {
      blocks_[found->second].to = i;
      alive.erase(found);
    }
  }
  note_uses();
  note_holders();
}

const SavedBlocks::Block* SavedBlocks::find(const void* memory, size_t position) const {
  const auto found = at_.find(memory);
  if (found == at_.end()) return nullptr;
  for (auto block = found->second.rbegin(); block != found->second.rend(); ++block) {
    const Block& one = blocks_[*block];
    if (one.from < position) return one.to >= position ? &one : nullptr;
  }
  return nullptr;
}

const RecordedOp* SavedBlocks::maker_of(uint64_t sequence) const {
  const auto after =
      std::upper_bound(step_.ops.begin(), step_.ops.end(), sequence,
                       [](uint64_t number, const RecordedOp& op) { return number < op.end_sequence; });
  return after != step_.ops.end() && after->first_sequence <= sequence ? &*after : nullptr;
}

// Memory that an operator made is known to the operator until its end.
void SavedBlocks::note_uses() {
  auto block = blocks_.begin();
  for (const RecordedOp& op : step_.ops) {
    while (block != blocks_.end() && block->from < op.begin) ++block;
    for (; block != blocks_.end() && block->from < op.end; ++block)
      block->last_use = std::max(block->last_use, op.end);
    for (const void* memory : op.memory) {
      if (const Block* used = find(memory, op.begin)) {
        Block& one = blocks_[static_cast<size_t>(used - blocks_.data())];
        one.last_use = std::max(one.last_use, op.end);
      }
    }
  }
}

void SavedBlocks::note_holders() {
  for (uint32_t i = 0; i < step_.nodes.size(); ++i) {
    const RecordedNode& node = step_.nodes[i];
    for (const RecordedSave& save : node.saved) {
      const Block* held = find(save.memory, step_.run_begins[node.run]);
      if (held == nullptr) continue;
      auto& holders = blocks_[static_cast<size_t>(held - blocks_.data())].holders;
      if (std::find(holders.begin(), holders.end(), i) == holders.end()) holders.push_back(i);
    }
  }
  // A node's tensors are released after its end and before the next node begins.
  std::vector<size_t> begins;
  for (const RecordedNode& node : step_.nodes) {
    if (node.begin != RecordedNode::kNever) begins.push_back(node.begin);
  }
  std::sort(begins.begin(), begins.end());
  for (Block& block : blocks_) {
    size_t end = 0;
    for (const uint32_t holder : block.holders) end = std::max(end, step_.nodes[holder].end);
    const auto next =
        end == RecordedNode::kNever ? begins.end() : std::lower_bound(begins.begin(), begins.end(), end);
    // The first node that begins later may begin at the same position.
    const auto later = next == begins.end() ? next : std::upper_bound(begins.begin(), begins.end(), *next);
    const size_t released_by = later == begins.end() ? step_.allocations.size() : *later;
    block.programs = !block.holders.empty() && block.to > released_by;
  }
}

}  // namespace overdrive::inspect
