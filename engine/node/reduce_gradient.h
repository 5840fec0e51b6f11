// The sum of a gradient over the dimensions in which the forward repeated its operand. No state, any thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine {

// Whether `gradient` is an ordinary one of more elements than `sizes`, which the host would sum to them.
bool can_reduce(const at::Tensor& gradient, at::IntArrayRef sizes);

// The sum, as the host's sum_to() makes it. `below_autograd`: nothing can notice that it is made without the
// dispatcher.
at::Tensor reduce_gradient(at::Tensor&& gradient, at::IntArrayRef sizes, bool below_autograd);

}  // namespace overdrive::engine
