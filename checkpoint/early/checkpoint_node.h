// The node that stands for a checkpointed region in the graph: takes the gradients of its outputs back
// through the tape that Recompute made, by a backward of its own. Owned by the graph.
#pragma once

#include "checkpoint/early/segment_node.h"

namespace overdrive::checkpoint {

class Checkpoint final : public SegmentNode {
 public:
  Checkpoint(std::shared_ptr<Segment> segment, base::edge_list next)
      : SegmentNode(std::move(segment), std::move(next)) {}

  std::string name() const override { return "Checkpoint"; }
  base::variable_list apply(base::variable_list&& gradients) override;
};

}  // namespace overdrive::checkpoint
