// Parts of a recorded forward that a program could checkpoint: the places to cut, and the part between two of
// them. Pure functions of the record.
#pragma once

#include "inspect/cost/saved_blocks.h"
#include "inspect/cost/step_record.h"

#include <string>
#include <vector>

namespace overdrive::inspect {

// A part of the forward: the nodes with these sequence numbers, and the positions of its operators.
struct Segment {
  uint64_t first = 0, last = 0;
  size_t begin = 0, end = 0;
  bool has(const RecordedNode& node) const {
    return !node.leaf && first <= node.sequence && node.sequence <= last;
  }
};

// The sequence numbers after the places where one tensor alone leads from the earlier nodes to the later ones,
// with the ends of the forward.
std::vector<uint64_t> natural_cuts(const StepRecord& step);

// The part from the node with number `first` to the node before `after`.
Segment segment_between(const StepRecord& step, uint64_t first, uint64_t after);

// "aten::conv2d #3 to aten::relu #8"
std::string name_of_segment(const SavedBlocks& all, uint64_t first, uint64_t last);

}  // namespace overdrive::inspect
