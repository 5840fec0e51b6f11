// Reverse mode in plain terms: marks inputs, runs a function, and pulls
// cotangents back through what was recorded. The gradients are computed by the program's
// default engine. Private: shared by vjp and by custom functions.
#pragma once

#include "forward_ad/drivers/driver_functions.h"

namespace overdrive::forward_ad {

// True for what reverse mode can differentiate with regard to.
bool is_differentiable(const at::Tensor& tensor);

bool any_requires_grad(const Tensors& tensors);

// Pulls back through the graph from `inputs` to `outputs`, both recorded tensors, and
// gives one gradient per input: zeros shaped like `zeros_like[i]` where there is none.
// The graph of the gradients is recorded when create_graph is set.
Tensors pull_back(const Tensors& outputs, const Tensors& inputs, const Tensors& cotangents, bool create_graph,
                  const Tensors& zeros_like);

// Note [Grad mode below forward mode]
// Many of LibTorch's backward formulas ask for grad mode to learn whether they will be
// differentiated. Where it is off they take a fused operator that has no forward formula
// (silu), or a factorisation as if it were a constant: det, logdet and solve would then get
// a wrong second derivative without a word. Forward mode differentiates them whatever the
// grad mode; so a pullback inside a level runs with grad mode on, and when its caller has
// it off, what was recorded meanwhile is cut off the results.

// True where a forward level is around: what runs now will be differentiated.
bool forward_mode_around();

// The same tensors with their tangents, but not part of a graph below the layers.
Tensors without_history(Tensors tensors);

// vjp where there is no layer: plain reverse mode. What f takes from outside must not
// require gradients unless it is among the inputs.
detail::Vjp vjp_below_layers(const detail::Function& f, const Tensors& inputs);

}  // namespace overdrive::forward_ad
