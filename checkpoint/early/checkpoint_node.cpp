#include "checkpoint/early/checkpoint_node.h"

namespace overdrive::checkpoint {

base::variable_list Checkpoint::apply(base::variable_list&& gradients) {
  check_backward();
  base::variable_list of_inputs = segment_->take(*this)->pull(gradients);
  of_inputs.insert(of_inputs.begin(), at::Tensor());  // the phony's
  return of_inputs;
}

}  // namespace overdrive::checkpoint
