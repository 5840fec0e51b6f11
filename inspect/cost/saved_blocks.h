// The pieces of memory of a recorded step with their users: operators that read them, nodes that saved them.
// Made once from a record, which it refers to; then constant.
#pragma once

#include "inspect/cost/step_record.h"

#include <unordered_map>

namespace overdrive::inspect {

class SavedBlocks {
 public:
  struct Block {
    int64_t bytes = 0;
    size_t from = 0, to = RecordedNode::kNever;  // places in the list of allocations
    size_t last_use = 0;                         // position: the end of the last operator that knows it
    std::vector<uint32_t> holders = {};          // nodes that saved it
    // The program keeps the memory beyond the nodes that saved it, so no remedy frees it.
    bool programs = false;
  };

  explicit SavedBlocks(const StepRecord& step);

  const StepRecord& step() const { return step_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  // The block at an address, where it is alive at the position; null for memory from before the step.
  const Block* find(const void* memory, size_t position) const;
  // The last operator that made a node up to this sequence number.
  const RecordedOp* maker_of(uint64_t sequence) const;

 private:
  void note_uses();
  void note_holders();

  const StepRecord& step_;
  std::vector<Block> blocks_;
  std::unordered_map<const void*, std::vector<uint32_t>> at_;  // blocks by address, in the order of time
};

}  // namespace overdrive::inspect
