// What the two nodes of a region have in common: each shares its segment until the graph lets go of it.
#pragma once

#include "checkpoint/early/segment.h"
#include "engine/base/whole_graph_node.h"

#include <memory>
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

}  // namespace overdrive::checkpoint
