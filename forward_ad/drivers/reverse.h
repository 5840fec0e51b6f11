// Reverse mode in plain terms: marks inputs, runs a function, and pulls cotangents back through the recorded
// graph; and what else the drivers share. No state of its own; the calling thread's. Leaves gradients to the
// program's default engine. Bodies are in vjp.cpp, unless a comment names another file. Private.
#pragma once

#include "engine/base/autograd_modes.h"
#include "forward_ad/drivers/driver_functions.h"

namespace overdrive::forward_ad {

// Takes the thread out of inference mode while a driver runs, because nothing has a derivative there. Does
// nothing elsewhere.
class InferenceModeExit {
 public:
  // Copies of the tensors that were made in inference mode: they can be part of nothing else.
  Tensors usable(const Tensors& tensors) const;

 private:
  const base::OutsideInference outside_;
};

// True for tensors that reverse mode can differentiate.
bool is_differentiable(const at::Tensor& tensor);

bool any_requires_grad(const Tensors& tensors);

// Pulls back through the graph from `inputs` to `outputs`, both recorded tensors, and returns one gradient per
// input: zeros shaped like `zeros_like[i]` where the graph gives none. create_graph records the graph of the
// gradients.
Tensors pull_back(const Tensors& outputs, const Tensors& inputs, const Tensors& cotangents, bool create_graph,
                  const Tensors& zeros_like);

// Note [Grad mode below forward mode]
// Many of LibTorch's backward formulas read grad mode to learn whether they will be differentiated. With grad
// mode off they use a fused operator without a forward formula (silu), or a factorisation as a constant: det,
// logdet and solve then get a wrong second derivative without an error. Forward mode differentiates them in
// every grad mode. So a pullback inside a level runs with grad mode on, and drops the recorded graph when its
// caller has grad mode off.

// True when a forward level is around, so that the operators that run now are differentiated.
bool forward_mode_around();

// The same tensors with their tangents, but not part of a graph below the layers.
Tensors without_history(Tensors tensors);

// vjp without a layer: plain reverse mode. Tensors that f takes from outside must not require gradients unless
// they are among the inputs.
detail::Vjp vjp_below_layers(const detail::Function& f, const Tensors& inputs);

// vjp on this thread's layers, of inputs that may be undefined or without derivatives. Outside of inference
// mode.
detail::Vjp vjp_unchecked(const detail::Function& f, const Tensors& inputs);

}  // namespace overdrive::forward_ad

namespace overdrive::forward_ad::detail {

// The reverse half of a custom function on layers (custom_pullback.cpp): its pullback, as a function that has a
// pullback of its own, and the node that runs it. See Note [Custom functions on layers].
//
// Records the outputs as results of the function. The node keeps `inputs` for its pullback and `shapes`,
// tensors shaped like the outputs; `history` are the inputs as they were recorded.
void set_pullback(const CustomFunctionPtr& function, Tensors inputs, Tensors shapes, const Tensors& history,
                  Tensors& outputs);

// The tangents of the outputs without a forward rule: the pullback (x, u) -> J^T u is linear in u. Its own
// pullback at (x, any u), applied to the tangents, has J times the tangents as its part for u.
Tensors double_vjp(const CustomFunctionPtr& function, const Tensors& inputs, const Tensors& outputs,
                   const Tensors& tangents);

// Puts the tensors that stand for a module's own on this thread (SubstitutionScope) in their place, for code
// that gets tensors without an operator. Its body is in substitution.cpp.
void substitute_in(Tensors& tensors);

// Checks of what a caller gives to a driver, and of the results of the caller's function (driver_checks.cpp).
// The drivers compare the shapes of tangents and cotangents themselves.
//
// An error where there is no input, or one is undefined.
void check_inputs(const char* driver, const Tensors& inputs);
// The same, and where an input has a type without derivatives. `real`: complex ones are refused, too.
void check_differentiable(const char* driver, const Tensors& inputs, bool real = false);

// Calls the function. An error where its results are undefined; errors of LibTorch about a custom Function say
// what to write instead.
Output call(const char* driver, const Function& f, const Tensors& inputs);

}  // namespace overdrive::forward_ad::detail
