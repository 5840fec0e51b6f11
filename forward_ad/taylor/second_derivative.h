// The first two derivatives of a function along one direction, in one run of the function where its operators
// allow it:
//
//   auto [u, u_x, u_xx, nested_because] = second_derivative(f, x, v);   // f(x), J v, v^T f'' v
//
// Takes functions in the forms of drivers.h, and its results are differentiable as those of the drivers there.
// The one run needs real tensors, operators with a rule (docs/guide/forward_mode.md lists them), no writes in
// place, and no other level around. Elsewhere the derivatives come from jvp() inside jvp(), and the function
// may have been called once in vain. Any thread.
#pragma once

#include "forward_ad/drivers/drivers.h"

#include <string>

namespace overdrive::forward_ad {

template <TensorOrTensors Out>  // What second_derivative() returns.
struct SecondDerivative {
  Out value;
  Out first;
  Out second;
  std::string nested_because;  // empty where one run was enough
};
template <TensorOrTensors Out>  // And of a function with aux.
struct SecondDerivativeWithAux {
  Out value;
  Out first;
  Out second;
  std::string nested_because;
  Tensors aux;
};

namespace detail {
struct Second {
  Output output;
  Tensors first, second;
  std::string nested_because;
};
OVERDRIVE_API Second second_derivative(const Function& f, const Tensors& inputs, const Tensors& directions);
}  // namespace detail

template <typename F, TensorOrTensors In>  // f(x), and its derivatives along `direction`.
  requires detail::DifferentiableFrom<F, In>
auto second_derivative(F&& f, const In& x, const std::type_identity_t<In>& direction) {
  using Out = detail::ValueOf<F, In>;
  detail::Second r =
      detail::second_derivative(detail::to_function<In>(f), detail::to_list(x), detail::to_list(direction));
  Out value = detail::from_list<Out>(std::move(r.output.values));
  Out first = detail::from_list<Out>(std::move(r.first)), second = detail::from_list<Out>(std::move(r.second));
  if constexpr (detail::ReturnedBy<F, In>::kHasAux) {
    return SecondDerivativeWithAux<Out>{std::move(value), std::move(first), std::move(second),
                                        std::move(r.nested_because), std::move(r.output.aux)};
  } else {
    return SecondDerivative<Out>{std::move(value), std::move(first), std::move(second),
                                 std::move(r.nested_because)};
  }
}

}  // namespace overdrive::forward_ad
