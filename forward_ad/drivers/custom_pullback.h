// The reverse half of a custom function on layers: its pullback, as a function that has a pullback of its own,
// and the node that runs it. See Note [Custom functions on layers]. Owned by the graph; as thread-safe as a
// node. Leaves the way through the layers to custom_jvp.cpp. Private.
#pragma once

#include "forward_ad/drivers/driver_functions.h"

namespace overdrive::forward_ad::detail {

// Records the outputs as results of the function. The node keeps `inputs` for its pullback and `shapes`,
// tensors shaped like the outputs; `history` are the inputs as they were recorded.
void set_pullback(const CustomFunctionPtr& function, Tensors inputs, Tensors shapes, const Tensors& history,
                  Tensors& outputs);

// The tangents of the outputs without a forward rule: the pullback (x, u) -> J^T u is linear in u. Its own
// pullback at (x, any u), applied to the tangents, has J times the tangents as its part for u.
Tensors double_vjp(const CustomFunctionPtr& function, const Tensors& inputs, const Tensors& outputs,
                   const Tensors& tangents);

}  // namespace overdrive::forward_ad::detail
