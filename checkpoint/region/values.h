// Tensors among other values: found in the arguments and results of a function, and replaced there. Known are
// Tensor, and optionals, vectors, arrays, deques, lists, maps, tuples and pairs of known types, in each other;
// other types pass untouched. Free functions without state.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace overdrive::checkpoint::detail {

template <typename T>
inline constexpr bool kIsTuple = false;
template <typename... Parts>
inline constexpr bool kIsTuple<std::tuple<Parts...>> = true;
template <typename First, typename Second>
inline constexpr bool kIsTuple<std::pair<First, Second>> = true;

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// A container that holds its elements, so that a copy of the container holds copies.
template <typename T>
inline constexpr bool kIsContainer = false;
template <typename T, typename... Rest>
inline constexpr bool kIsContainer<std::vector<T, Rest...>> = !std::is_same_v<T, bool>;
template <typename T, size_t N>
inline constexpr bool kIsContainer<std::array<T, N>> = true;
template <typename T, typename... Rest>
inline constexpr bool kIsContainer<std::deque<T, Rest...>> = true;
template <typename T, typename... Rest>
inline constexpr bool kIsContainer<std::list<T, Rest...>> = true;
template <typename Key, typename T, typename... Rest>
inline constexpr bool kIsContainer<std::map<Key, T, Rest...>> = true;

// A type that points to tensors of another owner, which may be gone when the function runs again.
template <typename T>
inline constexpr bool kIsReference = false;
template <>
inline constexpr bool kIsReference<at::ArrayRef<at::Tensor>> = true;
template <>
inline constexpr bool kIsReference<std::span<at::Tensor>> = true;
template <>
inline constexpr bool kIsReference<std::span<const at::Tensor>> = true;

// A container whose order may be another in each run.
template <typename T>
inline constexpr bool kIsUnordered = false;
template <typename Key, typename... Rest>
inline constexpr bool kIsUnordered<std::unordered_map<Key, at::Tensor, Rest...>> = true;

// Calls `visit` with every tensor in the value, in order.
template <typename Value, typename Visit>
void for_each_tensor(Value& value, Visit& visit) {
  using T = std::remove_const_t<Value>;
  static_assert(!kIsReference<T>,
                "checkpoint: a TensorList or span does not own its tensors; pass a std::vector<at::Tensor>");
  static_assert(!kIsUnordered<T>, "checkpoint: the order of an unordered_map is not fixed; use a std::map");
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (kIsOptional<T>) {
    if (value) for_each_tensor(*value, visit);
  } else if constexpr (kIsContainer<T>) {
    for (auto& element : value) for_each_tensor(element, visit);
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
