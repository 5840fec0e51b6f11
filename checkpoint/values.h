// Tensors among other values: finds them in the arguments and results of a function, and puts others in
// their place. Known are Tensor, optional<Tensor>, vector<Tensor>, and tuples and pairs of anything; other
// types pass untouched. Free functions without state.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace overdrive::checkpoint::detail {

template <typename T>
inline constexpr bool kIsTuple = false;
template <typename... Parts>
inline constexpr bool kIsTuple<std::tuple<Parts...>> = true;
template <typename First, typename Second>
inline constexpr bool kIsTuple<std::pair<First, Second>> = true;

// Calls `visit` with every tensor in the value, in order.
template <typename Value, typename Visit>
void for_each_tensor(Value& value, Visit& visit) {
  using T = std::remove_const_t<Value>;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    if (value) visit(*value);
  } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
    for (auto& tensor : value) visit(tensor);
  } else if constexpr (kIsTuple<T>) {
    std::apply([&visit](auto&... parts) { (for_each_tensor(parts, visit), ...); }, value);
  }
}

template <typename Value>
void take_tensors(Value& value, std::vector<at::Tensor>& tensors) {
  auto take = [&tensors](at::Tensor& tensor) { tensors.push_back(std::move(tensor)); };
  for_each_tensor(value, take);
}

template <typename Value>
void put_tensors(Value& value, const std::vector<at::Tensor>& tensors, size_t& next) {
  auto put = [&](at::Tensor& tensor) { tensor = tensors[next++]; };
  for_each_tensor(value, put);
}

}  // namespace overdrive::checkpoint::detail
