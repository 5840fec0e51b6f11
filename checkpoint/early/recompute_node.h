// The node that runs a checkpointed region again. Its only input and output are phonies: it waits for what
// it was joined to, and what was forked waits for it, so it can be placed before the gradient of its region
// arrives. Owned by the graph.
#pragma once

#include "checkpoint/early/segment_node.h"

namespace overdrive::checkpoint {

class Recompute final : public SegmentNode {
 public:
  Recompute(std::shared_ptr<Segment> segment, base::edge_list next)
      : SegmentNode(std::move(segment), std::move(next)) {}

  std::string name() const override { return "Recompute"; }
  base::variable_list apply(base::variable_list&& gradients) override;

  Segment& segment() { return *segment_; }
};

}  // namespace overdrive::checkpoint
