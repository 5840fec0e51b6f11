// Adds gradients that meet in one slot, as the host does: the first is moved, the second is added
// into the first where nobody else can see it, into a new tensor otherwise. No state; the
// calling thread's grad mode decides whether the sum is recorded.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine {

// `consumer` is the node that the slot belongs to. `below_autograd`: nothing can notice that a sum is made
// without the dispatcher.
void add_to_defined_slot(at::Tensor& slot, at::Tensor&& gradient, base::Node* consumer, bool below_autograd);

inline void add_gradient(at::Tensor& slot, at::Tensor&& gradient, base::Node* consumer,
                         bool below_autograd = false) {
  if (!gradient.defined()) return;
  if (!slot.defined()) [[likely]] {
    slot = std::move(gradient);
  } else {
    add_to_defined_slot(slot, std::move(gradient), consumer, below_autograd);
  }
}

// Whether `gradient` is an ordinary one of more elements than `sizes`, which the host would sum to them.
bool can_reduce(const at::Tensor& gradient, at::IntArrayRef sizes);

// The sum of a gradient over the dimensions in which the forward repeated its operand, as the host's sum_to()
// makes it. `below_autograd`: nothing can notice that it is made without the
// dispatcher.
at::Tensor reduce_gradient(at::Tensor&& gradient, at::IntArrayRef sizes, bool below_autograd);

}  // namespace overdrive::engine
