// The two nodes of a region in the early form. Checkpoint stands for the region: takes the gradients of its
// outputs back through a tape, by a backward of its own. Recompute makes the tape; its only input and output
// are phonies, so it can be placed before the gradient arrives. Both are owned by the graph, and share a
// segment until it goes.
#pragma once

#include "checkpoint/ahead/next_regions.h"
#include "checkpoint/early/segment.h"
#include "engine/base/whole_graph_node.h"

#include <memory>
#include <string>
#include <utility>

namespace overdrive::checkpoint {

class SegmentNode : public base::HoldingNode, public base::WholeGraphNode {
 public:
  void check_backward() const override { segment_->check_backward(); }
  void release_variables() override { segment_->release(); }
  // The segment's inputs have a history: see HoldingNode.
  void release_resources() override {
    segment_.reset();
    HoldingNode::release_resources();
  }

 protected:
  SegmentNode(std::shared_ptr<Segment> segment, base::edge_list next)
      : HoldingNode(std::move(next)), segment_(std::move(segment)) {}

  std::shared_ptr<Segment> segment_;
};

class Checkpoint final : public SegmentNode {
 public:
  Checkpoint(std::shared_ptr<Segment> segment, base::edge_list next)
      : SegmentNode(std::move(segment), std::move(next)) {}

  std::string name() const override { return "Checkpoint"; }
  base::variable_list apply(base::variable_list&& gradients) override;
};

class Recompute final : public SegmentNode, public AheadNode {
 public:
  Recompute(std::shared_ptr<Segment> segment, base::edge_list next)
      : SegmentNode(std::move(segment), std::move(next)) {}

  std::string name() const override { return "Recompute"; }
  base::variable_list apply(base::variable_list&& gradients) override;

  AheadRegion& ahead_region() override { return segment_->ahead(); }
};

}  // namespace overdrive::checkpoint
