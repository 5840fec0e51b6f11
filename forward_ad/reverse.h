// Reverse mode in plain terms: marks inputs, runs a function, and pulls
// cotangents back through what was recorded. The gradients are computed by the program's
// default engine. Private: shared by vjp and by custom functions.
#pragma once

#include "forward_ad/driver_functions.h"

namespace overdrive::forward_ad {

// True for what reverse mode can differentiate with regard to.
bool is_differentiable(const at::Tensor& tensor);

// Pulls back through the graph from `inputs` to `outputs`, both recorded tensors, and
// gives one gradient per input: zeros shaped like `zeros_like[i]` where there is none.
// The graph of the gradients is recorded when create_graph is set.
Tensors pull_back(const Tensors& outputs, const Tensors& inputs, const Tensors& cotangents, bool create_graph,
                  const Tensors& zeros_like);

// vjp where there is no layer: plain reverse mode. What f takes from outside must not
// require gradients unless it is among the inputs.
detail::Vjp vjp_below_layers(const detail::Function& f, const Tensors& inputs);

}  // namespace overdrive::forward_ad
