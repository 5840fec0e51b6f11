// Gradients of functions that return one number, and functions mapped over the rows of tensors:
//
//   Tensor dx = grad(loss, x);                                       // of the shape of x
//   auto [gradient, value] = grad_and_value(loss, x);
//   Tensor y = vmap(f, x, {.in_dims = {1}, .out_dims = {1}});        // f of each column, in one run
//   Tensor each = vmap([&](const Tensor& row) { return grad(loss, row); }, x);   // a gradient for each row
//
// They nest with each other and with the drivers of drivers.h, and take functions in the same forms. Any
// thread.
#pragma once

#include "forward_ad/drivers/drivers.h"

namespace overdrive::forward_ad {

template <TensorOrTensors In>  // What grad_and_value() returns.
struct GradAndValue {
  In gradient;
  at::Tensor value;
};
template <TensorOrTensors In>  // And of a function with aux.
struct GradAndValueWithAux {
  In gradient;
  at::Tensor value;
  Tensors aux;
};

// The gradient of a function with one number as its result, and that number. A list has a list of gradients.
// With aux: a third field.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In> && std::same_as<detail::ValueOf<F, In>, at::Tensor>
auto grad_and_value(F&& f, const In& x) {
  detail::Grad r = detail::grad("grad_and_value", detail::to_function<In>(f), detail::to_list(x));
  In gradient = detail::from_list<In>(std::move(r.gradients));
  if constexpr (detail::ReturnedBy<F, In>::kHasAux) {
    return GradAndValueWithAux<In>{std::move(gradient), std::move(r.output.values[0]), std::move(r.output.aux)};
  } else {
    return GradAndValue<In>{std::move(gradient), std::move(r.output.values[0])};
  }
}

// The gradient alone. With aux: {value, aux}, the value being the gradient.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In> && std::same_as<detail::ValueOf<F, In>, at::Tensor>
auto grad(F&& f, const In& x) {
  detail::Grad r = detail::grad("grad", detail::to_function<In>(f), detail::to_list(x));
  return detail::result_of<detail::ReturnedBy<F, In>::kHasAux>(detail::from_list<In>(std::move(r.gradients)),
                                                               std::move(r.output));
}

// f of each row, with all rows computed at once: operators see tensors without the mapped dimension. An
// operator that cannot be vectorised runs row by row, with a warning of LibTorch's.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In> && (!detail::ReturnedBy<F, In>::kHasAux)
auto vmap(F&& f, const In& x, const VmapOptions& options = {}) {
  return detail::from_list<detail::ValueOf<F, In>>(
      detail::vmap(detail::to_function<In>(f), detail::to_list(x), options));
}

}  // namespace overdrive::forward_ad
