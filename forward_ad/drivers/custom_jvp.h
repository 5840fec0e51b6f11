// Forward rules for a program's own torch::autograd::Function, which LibTorch offers in Python only. Change the
// base class, add a rule, and call apply() as before:
//
//   struct Cube : CustomJvp<Cube> {
//     static Tensor forward(AutogradContext* ctx, const Tensor& x);
//     static variable_list backward(AutogradContext* ctx, variable_list grads);
//     static Tensors jvp(const Tensors& inputs, const Tensors& outputs, const Tensors& tangents) {
//       return {3 * inputs[0] * inputs[0] * tangents[0]};
//     }
//   };
//
// The rule gets the tensor arguments in order, then the other arguments of apply(), and returns a tangent per
// output; an undefined tangent means zero. It is written in ordinary operators, so it can be differentiated
// again. For vmap() and vectorised Jacobians, give the results of all rows at once:
//
//     static VmapResult vmap(const VmapInfo&, const VmapDims& in_dims, const Tensors& inputs);
//
// forward() must not write into its arguments, and a tensor with a tangent inside a list argument is an
// error. Such a Function works inside every driver, nested to any order. Reverse mode inside a level calls
// forward() again, and without `vmap` a Jacobian meets it in a loop. Outside of all levels it is LibTorch's
// apply(). Any thread.
#pragma once

#include "forward_ad/drivers/driver_functions.h"

#include <c10/util/Type.h>
#include <torch/csrc/autograd/custom_function.h>

#include <concepts>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace overdrive::forward_ad {

namespace detail {

template <typename T>
inline constexpr bool kIsTensorArgument = std::same_as<std::remove_cvref_t<T>, at::Tensor> ||
                                          std::same_as<std::remove_cvref_t<T>, std::optional<at::Tensor>>;

template <typename T>
void check_argument(const std::string& name, const T& argument) {
  if constexpr (std::convertible_to<const T&, at::TensorList> && !kIsTensorArgument<T>)
    check_list_argument(name, argument);
}

template <typename T>
void collect(Tensors& tensors, const T& argument) {
  if constexpr (std::same_as<T, at::Tensor>) {
    tensors.push_back(argument);
  } else if constexpr (std::same_as<T, std::optional<at::Tensor>>) {
    tensors.push_back(argument.value_or(at::Tensor()));
  }
}

// The argument without its tensor, for a call that is made again.
template <typename T>
T without_tensor(const T& argument) {
  if constexpr (kIsTensorArgument<T>) {
    return T();
  } else {
    return argument;
  }
}

// The argument, or the tensor that takes its place.
template <typename T>
T substitute(const T& argument, const Tensors& tensors, size_t& next) {
  if constexpr (std::same_as<T, at::Tensor>) {
    return tensors[next++];
  } else if constexpr (std::same_as<T, std::optional<at::Tensor>>) {
    const at::Tensor& tensor = tensors[next++];
    return tensor.defined() ? T(tensor) : T();
  } else {
    return argument;
  }
}

template <typename T>
auto rule_argument(const T& argument) {
  if constexpr (kIsTensorArgument<T>) {
    return std::tuple<>();
  } else {
    return std::tuple<T>(argument);
  }
}

template <typename T, typename Others>
inline constexpr bool kHasRule = false;
template <typename T, typename... Others>
inline constexpr bool kHasRule<T, std::tuple<Others...>> =
    requires(const Tensors& list, const Others&... others) { T::jvp(list, list, list, others...); };

template <typename T, typename Others>
inline constexpr bool kHasVmap = false;
template <typename T, typename... Others>
inline constexpr bool kHasVmap<T, std::tuple<Others...>> =
    requires(const VmapInfo& info, const VmapDims& dims, const Tensors& list, const Others&... others) {
      { T::vmap(info, dims, list, others...) } -> std::same_as<VmapResult>;
    };

inline Tensors as_list(at::Tensor&& tensor) { return {std::move(tensor)}; }
inline Tensors as_list(Tensors&& tensors) { return std::move(tensors); }

// T's own apply(), of its base Function, whose result is a Tensor or a list.
template <typename T, typename... Args>
auto plain_apply(const Args&... args) {
  return torch::autograd::Function<T>::template apply<T>(args...);
}

template <typename T, typename... Args>
auto apply_custom(bool double_vjp, const Args&... args) {
  using Result = decltype(plain_apply<T>(args...));
  // A graph keeps the function, so it holds copies of the arguments, but not of the tensors.
  auto function = std::make_shared<CustomFunction>();
  function->name = c10::demangle_type<T>();
  function->double_vjp = double_vjp;
  (check_argument(function->name, args), ...);
  function->apply = [kept = std::tuple<Args...>(without_tensor(args)...)](const Tensors& tensors) {
    size_t next = 0;
    auto call = [&](const auto&... each) {
      std::tuple<Args...> substituted{substitute(each, tensors, next)...};  // braces: left to right
      return std::apply([](const auto&... all) { return plain_apply<T>(all...); }, substituted);
    };
    return as_list(std::apply(call, kept));
  };
  auto others = std::tuple_cat(rule_argument(args)...);
  if constexpr (kHasRule<T, decltype(others)>) {
    function->jvp = [others](const Tensors& inputs, const Tensors& outputs,
                             const Tensors& tangents) -> Tensors {
      return std::apply([&](const auto&... each) { return T::jvp(inputs, outputs, tangents, each...); },
                        others);
    };
  }
  if constexpr (kHasVmap<T, decltype(others)>) {
    function->vmap = [others](const VmapInfo& info, const VmapDims& dims, const Tensors& inputs) {
      return std::apply([&](const auto&... each) { return T::vmap(info, dims, inputs, each...); }, others);
    };
  }
  Tensors inputs;
  (collect(inputs, args), ...);
  Tensors outputs = call_custom(function, inputs);
  if constexpr (std::same_as<Result, at::Tensor>) {
    return std::move(outputs[0]);
  } else {
    return outputs;
  }
}

}  // namespace detail

// A Function with a forward rule of its own: T::jvp. A T without a rule is an error where a tangent reaches it.
template <typename T>
class CustomJvp : public torch::autograd::Function<T> {
 public:
  template <typename... Args>  // As torch::autograd::Function::apply().
  static auto apply(const Args&... args) {
    return detail::apply_custom<T, Args...>(/*double_vjp=*/false, args...);
  }
};

// A Function whose tangents are computed from its backward(): J^T u is linear in u, so its own transpose is J.
// Costs one forward and two backwards; backward() must be made of differentiable operators.
template <typename T>
class DoubleVjp : public torch::autograd::Function<T> {
 public:
  template <typename... Args>  // As torch::autograd::Function::apply().
  static auto apply(const Args&... args) {
    return detail::apply_custom<T, Args...>(/*double_vjp=*/true, args...);
  }
};

}  // namespace overdrive::forward_ad
