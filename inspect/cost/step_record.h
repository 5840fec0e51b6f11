// The record of a step, as far as its memory depends on it: operators of the forward, nodes of its backwards,
// and the tensors that the nodes saved. Plain values; positions are places in the list of allocations: the
// length of the list at that moment.
#pragma once

#include "inspect/cost/allocation_log.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace overdrive::inspect {

// An operator that the program called outside of backwards.
struct RecordedOp {
  std::string name;
  size_t begin = 0, end = 0;                      // positions
  uint64_t first_sequence = 0, end_sequence = 0;  // of the nodes that it made
  std::vector<const void*> memory;                // of its inputs
};

struct RecordedSave {
  const void* memory = nullptr;
  std::string geometry;     // equal for equal sizes, strides and offset
  int64_t elements = 0;     // those that repeat count once
  int64_t bytes = 0;        // of the elements
  bool int8_takes = false;  // the default packer of hooks/ would take it
};

struct RecordedNode {
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();

  std::string name;
  uint64_t sequence = 0;
  bool leaf = false;
  uint32_t run = 0;                     // which backward
  size_t begin = kNever, end = kNever;  // positions; kNever: did not run
  std::vector<uint32_t> next;           // places among the nodes
  std::vector<RecordedSave> saved;
};

struct StepRecord {
  std::vector<Allocation> allocations;
  std::vector<RecordedOp> ops;
  std::vector<RecordedNode> nodes;
  std::vector<size_t> run_begins;  // positions
};

}  // namespace overdrive::inspect
