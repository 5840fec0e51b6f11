#include "checkpoint/recompute_node.h"

#include <utility>

namespace overdrive::checkpoint {

Recompute::Recompute(std::shared_ptr<Segment> segment, base::edge_list next)
    : Node(std::move(next)), segment_(std::move(segment)) {}

base::variable_list Recompute::apply(base::variable_list&& gradients) {
  (void)gradients;
  segment_->check_backward();
  segment_->recompute(*this);
  return {at::Tensor()};
}

void Recompute::release_variables() { segment_->release(); }

void Recompute::release_resources() {
  segment_.reset();
  Node::release_resources();
}

}  // namespace overdrive::checkpoint
