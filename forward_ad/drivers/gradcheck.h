// Gradients compared with numeric ones, for a program's own functions and nodes:
//
//   Tensor x = at::randn({3}, at::kDouble).requires_grad_();
//   gradcheck(f, x);                                   // throws, with the worst element, where they disagree
//   gradgradcheck(f, x);                               // the same of the gradients
//   gradcheck(f, x, {.check_forward_ad = true});       // J v by forward mode as well
//
// Reverse mode is plain backwards by the program's engine. Inputs that require grad are checked, and must be of
// double precision: the numeric derivative is a difference quotient. Complex numbers count as their two parts.
// Names and values of the options are PyTorch's. Any thread; f is called several times an element.
#pragma once

#include "forward_ad/drivers/drivers.h"

namespace overdrive::forward_ad {

struct GradcheckOptions {  // The options of gradcheck() and gradgradcheck().
  double eps = 1e-6;       // the step of the difference quotient
  double atol = 1e-5;
  double rtol = 1e-3;
  double nondet_tol = 0;  // how much two backwards through one graph may differ
  // False: a check that fails returns false, and no text.
  bool raise_exception = true;
  bool check_forward_ad = false;
  bool check_backward_ad = true;
};

namespace detail {
OVERDRIVE_API bool gradcheck(const Function& f, const Tensors& inputs, const GradcheckOptions& options);
OVERDRIVE_API bool gradgradcheck(const Function& f, const Tensors& inputs, const Tensors& grad_outputs,
                                 const GradcheckOptions& options);
}  // namespace detail

template <typename F, TensorOrTensors In>  // Whether gradients and numeric ones agree; throws if not.
  requires detail::DifferentiableFrom<F, In>
bool gradcheck(F&& f, const In& inputs, const GradcheckOptions& options = {}) {
  return detail::gradcheck(detail::to_function<In>(f), detail::to_list(inputs), options);
}

// `grad_outputs`: the gradients of the results, one each; random ones when there are none.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In>
bool gradgradcheck(F&& f, const In& inputs, const Tensors& grad_outputs = {},
                   const GradcheckOptions& options = {}) {
  return detail::gradgradcheck(detail::to_function<In>(f), detail::to_list(inputs), grad_outputs, options);
}

}  // namespace overdrive::forward_ad
