// The node that stands for a checkpointed region in the graph: takes the gradients of its outputs back
// through the tape that Recompute made, by a backward of its own. Owned by the graph.
#pragma once

#include "checkpoint/segment.h"

namespace overdrive::checkpoint {

class Checkpoint final : public base::Node {
 public:
  Checkpoint(std::shared_ptr<Segment> segment, base::edge_list next);

  std::string name() const override { return "Checkpoint"; }
  base::variable_list apply(base::variable_list&& gradients) override;
  void release_variables() override;
  void release_resources() override;

 private:
  std::shared_ptr<Segment> segment_;
};

}  // namespace overdrive::checkpoint
