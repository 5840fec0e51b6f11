#include "checkpoint/early/segment_nodes.h"

#include <optional>

namespace overdrive::checkpoint {

base::variable_list Checkpoint::apply(base::variable_list&& gradients) {
  check_backward();
  base::variable_list of_inputs = segment_->take(*this)->pull(gradients);
  of_inputs.insert(of_inputs.begin(), at::Tensor());  // the phony's
  return of_inputs;
}

base::variable_list Recompute::apply(base::variable_list&& gradients) {
  (void)gradients;
  check_backward();
  std::optional<NextRegions> next;
  if (segment_->ahead().reach() > 0) next.emplace(*this, segment_->ahead());
  segment_->recompute(*this);
  if (next) next->run_the_others();
  return {at::Tensor()};
}

}  // namespace overdrive::checkpoint
