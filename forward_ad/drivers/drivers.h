// Derivatives of ordinary functions, in any number and any order of nesting:
//
//   auto [y, dy] = jvp(f, x, v);                    // J v, forward mode
//   auto [z, pullback] = vjp(f, x);                 // pullback(u) = J^T u, reverse mode
//   Tensor J = jacfwd(f, x);                        // or jacrev(f, x)
//   Tensor H = hessian(g, x);
//   auto [v0, gradient, product] = hvp(g, x, v);    // forward over reverse
//   Tensor third = elementwise_derivative(sin, x, 3);
//
// f takes and returns a Tensor or a list (Tensors); results have the same form. Results that are not
// differentiated are returned by `with_aux(value, aux)`, and the driver's result then has a field `aux`.
//
// Results are differentiable by the surroundings of the call: another driver, an open level, or reverse mode
// (not under a NoGradGuard, which is cheaper). f may be called several times, on the calling thread only, and
// must not write into its arguments. Drivers keep nothing of a call. Any thread.
#pragma once

#include "forward_ad/drivers/driver_functions.h"

#include <c10/util/Exception.h>

#include <concepts>
#include <type_traits>
#include <utility>

namespace overdrive::forward_ad {

template <typename T>
concept TensorOrTensors = std::same_as<T, at::Tensor> || std::same_as<T, Tensors>;

// A function's value beside results that are only passed through.
template <TensorOrTensors T>
struct WithAux {
  T value;
  Tensors aux;
};

inline WithAux<at::Tensor> with_aux(at::Tensor value, Tensors aux) {  // For a function to return.
  return {std::move(value), std::move(aux)};
}
inline WithAux<Tensors> with_aux(Tensors value, Tensors aux) { return {std::move(value), std::move(aux)}; }

namespace detail {

template <typename T>
struct Returned {
  using Value = T;
  static constexpr bool kHasAux = false;
};
template <typename T>
struct Returned<WithAux<T>> {
  using Value = T;
  static constexpr bool kHasAux = true;
};

template <typename F, typename In>
using ReturnedBy = Returned<std::remove_cvref_t<std::invoke_result_t<F&, const In&>>>;
template <typename F, typename In>
using ValueOf = typename ReturnedBy<F, In>::Value;

template <typename F, typename In>
concept DifferentiableFrom =
    TensorOrTensors<In> && std::invocable<F&, const In&> && TensorOrTensors<ValueOf<F, In>>;

inline Tensors to_list(const at::Tensor& tensor) { return {tensor}; }
inline Tensors to_list(const Tensors& tensors) { return tensors; }

template <TensorOrTensors T>
T from_list(Tensors&& list) {
  if constexpr (std::same_as<T, Tensors>) {
    return std::move(list);
  } else {
    TORCH_INTERNAL_ASSERT(list.size() == 1);
    return std::move(list[0]);
  }
}

template <typename F>
inline constexpr bool kMayBeEmpty = std::is_pointer_v<F>;
template <typename Signature>
inline constexpr bool kMayBeEmpty<std::function<Signature>> = true;

template <TensorOrTensors In, typename F>
Function to_function(F& f) {
  if constexpr (kMayBeEmpty<std::remove_const_t<F>>) {
    TORCH_CHECK(f != nullptr, "A driver of derivatives was given an empty function.");
  }
  return [&f](const Tensors& inputs) -> Output {
    auto call = [&]() -> decltype(auto) {
      if constexpr (std::same_as<In, Tensors>) {
        return f(inputs);
      } else {
        return f(inputs[0]);
      }
    };
    if constexpr (ReturnedBy<F, In>::kHasAux) {
      auto result = call();
      return {to_list(result.value), std::move(result.aux)};
    } else {
      return {to_list(call()), {}};
    }
  };
}

// A list over outputs (if f returns a list) of a list over inputs (if it takes one).
template <TensorOrTensors Out, TensorOrTensors In>
auto shape_jacobian(std::vector<Tensors>&& rows) {
  if constexpr (std::same_as<Out, Tensors> && std::same_as<In, Tensors>) {
    return std::move(rows);
  } else if constexpr (std::same_as<Out, Tensors>) {
    Tensors column;
    for (auto& row : rows) column.push_back(std::move(row[0]));
    return column;
  } else {
    return from_list<In>(std::move(rows[0]));
  }
}

template <typename Value>
struct ValueWithAux {
  Value value;
  Tensors aux;
};

// The value alone, or the value and the results that f passed through.
template <bool has_aux, typename Value>
auto result_of(Value&& value, Output&& output) {
  if constexpr (has_aux) {
    return ValueWithAux<std::remove_cvref_t<Value>>{std::forward<Value>(value), std::move(output.aux)};
  } else {
    return std::remove_cvref_t<Value>(std::forward<Value>(value));
  }
}

}  // namespace detail

template <TensorOrTensors Out>  // What jvp() returns.
struct JvpResult {
  Out value;
  Out tangent;
};
template <TensorOrTensors Out>  // And of a function with aux.
struct JvpResultWithAux {
  Out value;
  Out tangent;
  Tensors aux;
};

// f(x) and its derivative at x along the tangent.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In>
auto jvp(F&& f, const In& x, const std::type_identity_t<In>& tangent) {
  using Out = detail::ValueOf<F, In>;
  detail::Jvp r = detail::jvp(detail::to_function<In>(f), detail::to_list(x), detail::to_list(tangent));
  Out value = detail::from_list<Out>(std::move(r.output.values));
  Out slope = detail::from_list<Out>(std::move(r.tangents));
  if constexpr (detail::ReturnedBy<F, In>::kHasAux) {
    return JvpResultWithAux<Out>{std::move(value), std::move(slope), std::move(r.output.aux)};
  } else {
    return JvpResult<Out>{std::move(value), std::move(slope)};
  }
}

template <TensorOrTensors Out, TensorOrTensors In>  // What vjp() returns.
struct VjpResult {
  Out value;
  std::function<In(const Out&)> pullback;
};
template <TensorOrTensors Out, TensorOrTensors In>  // And of a function with aux.
struct VjpResultWithAux {
  Out value;
  std::function<In(const Out&)> pullback;
  Tensors aux;
};

// f(x) and the function u -> J^T u, which may be called any number of times and keeps the graph of f until it
// goes away. An input that f does not use has a gradient of zeros.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In>
auto vjp(F&& f, const In& x) {
  using Out = detail::ValueOf<F, In>;
  detail::Vjp r = detail::vjp(detail::to_function<In>(f), detail::to_list(x));
  Out value = detail::from_list<Out>(std::move(r.output.values));
  std::function<In(const Out&)> pullback = [inner = std::move(r.pullback)](const Out& cotangent) {
    return detail::from_list<In>(inner(detail::to_list(cotangent)));
  };
  if constexpr (detail::ReturnedBy<F, In>::kHasAux) {
    return VjpResultWithAux<Out, In>{std::move(value), std::move(pullback), std::move(r.output.aux)};
  } else {
    return VjpResult<Out, In>{std::move(value), std::move(pullback)};
  }
}

// The Jacobian, by columns (forward mode: few inputs) or by rows (reverse mode: few outputs). Of shape
// [output..., input...]; a list over outputs of a list over inputs where f has lists. With aux: {value, aux}.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In>
auto jacfwd(F&& f, const In& x, const JacobianOptions& options = {}) {
  detail::Jacobian r = detail::jacfwd(detail::to_function<In>(f), detail::to_list(x), options);
  return detail::result_of<detail::ReturnedBy<F, In>::kHasAux>(
      detail::shape_jacobian<detail::ValueOf<F, In>, In>(std::move(r.jacobian)), std::move(r.output));
}

template <typename F, TensorOrTensors In>  // As jacfwd(), by reverse mode: for few results.
  requires detail::DifferentiableFrom<F, In>
auto jacrev(F&& f, const In& x, const JacobianOptions& options = {}) {
  detail::Jacobian r = detail::jacrev(detail::to_function<In>(f), detail::to_list(x), options);
  return detail::result_of<detail::ReturnedBy<F, In>::kHasAux>(
      detail::shape_jacobian<detail::ValueOf<F, In>, In>(std::move(r.jacobian)), std::move(r.output));
}

// Second derivatives of a function with one tensor as its result: of shape [output..., input..., input...],
// forward over reverse mode. For a function of a list, [i][j] is the derivative with regard to input i and then
// input j.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In> && std::same_as<detail::ValueOf<F, In>, at::Tensor>
auto hessian(F&& f, const In& x, const JacobianOptions& options = {}) {
  detail::Jacobian r = detail::hessian(detail::to_function<In>(f), detail::to_list(x), options);
  return detail::result_of<detail::ReturnedBy<F, In>::kHasAux>(
      detail::shape_jacobian<In, In>(std::move(r.jacobian)), std::move(r.output));
}

template <TensorOrTensors In>  // What hvp() returns.
struct HvpResult {
  at::Tensor value;
  In gradient;
  In product;
};
template <TensorOrTensors In>  // And of a function with aux.
struct HvpResultWithAux {
  at::Tensor value;
  In gradient;
  In product;
  Tensors aux;
};

// The gradient of a function with one number as its result, and its Hessian times v.
template <typename F, TensorOrTensors In>
  requires detail::DifferentiableFrom<F, In> && std::same_as<detail::ValueOf<F, In>, at::Tensor>
auto hvp(F&& f, const In& x, const std::type_identity_t<In>& v, HvpMode mode = HvpMode::kForwardOverReverse) {
  detail::Hvp r = detail::hvp(detail::to_function<In>(f), detail::to_list(x), detail::to_list(v), mode);
  at::Tensor value = std::move(r.output.values[0]);
  In gradient = detail::from_list<In>(std::move(r.gradients));
  In product = detail::from_list<In>(std::move(r.products));
  if constexpr (detail::ReturnedBy<F, In>::kHasAux) {
    return HvpResultWithAux<In>{std::move(value), std::move(gradient), std::move(product),
                                std::move(r.output.aux)};
  } else {
    return HvpResult<In>{std::move(value), std::move(gradient), std::move(product)};
  }
}

// The n-th derivative of f at x along the direction of ones, by n nested levels: that of a function of one
// number, or of one that acts on each element by itself. n = 0 is f(x).
OVERDRIVE_API at::Tensor elementwise_derivative(const std::function<at::Tensor(const at::Tensor&)>& f,
                                                const at::Tensor& x, int64_t n);
// The name from before.
inline at::Tensor nth_derivative(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x,
                                 int64_t n) {
  return elementwise_derivative(f, x, n);
}

}  // namespace overdrive::forward_ad
