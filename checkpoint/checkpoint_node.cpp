#include "checkpoint/checkpoint_node.h"

#include <utility>

namespace overdrive::checkpoint {

Checkpoint::Checkpoint(std::shared_ptr<Segment> segment, base::edge_list next)
    : Node(std::move(next)), segment_(std::move(segment)) {}

base::variable_list Checkpoint::apply(base::variable_list&& gradients) {
  segment_->check_backward();
  base::variable_list of_inputs = segment_->take(*this)->pull(gradients);
  of_inputs.insert(of_inputs.begin(), at::Tensor());  // the phony's
  return of_inputs;
}

void Checkpoint::release_variables() { segment_->release(); }

// The segment's inputs have a history: see Node::release_resources().
void Checkpoint::release_resources() {
  segment_.reset();
  Node::release_resources();
}

}  // namespace overdrive::checkpoint
