// A training step that is recorded once and replayed afterwards, with eager's bits:
// overdrive::capture(function). The caller owns the step. While a thread is in a call, calls of others run the
// function. A step is not called from inside a captured function. The function and what it refers to must
// outlive the step. docs/guide/capturing.md says what is replayed and what is not.
#pragma once

#include "engine/base/export.h"
#include "replay/capture_options.h"
#include "replay/file/save_options.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace overdrive {

namespace replay {
class CapturedFunction;
using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
}  // namespace replay

class OVERDRIVE_API CapturedStep {  // A captured function of a list.
 public:
  CapturedStep(replay::Function function, CaptureOptions options);
  // A part: captured.h.
  CapturedStep(replay::Function function, CaptureOptions options, bool is_part);
  ~CapturedStep();
  CapturedStep(CapturedStep&&) noexcept;
  CapturedStep& operator=(CapturedStep&&) noexcept;

  // The function's results: detached, and in replays fresh.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs);

  // A number that the function reads. A call in which it has another value is recorded anew. Of a part, it
  // keeps its value until the backward of the call.
  template <typename T>
  void watch(const T* value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>, "watch() takes a pointer to a number");
    watch_bytes(value, sizeof(T));
  }
  // Writes the programs that replay now to a file for load_step() (step_file.h), as a function called "step".
  void save(const std::string& path, const SaveOptions& options = {}) const;
  // Forgets every recording: for changes that no guard sees.
  void reset();

  // Whether a call with these inputs would be replayed now. Looks at every guard and runs nothing. False inside
  // of an autocast context that keeps casts of the step's weights.
  bool would_replay(const std::vector<at::Tensor>& inputs);
  CaptureStats stats() const;
  // Why a call is not replayed, if there is a reason that stays; else empty.
  std::string refusal() const;
  // The programs, their memory, and why they were recorded anew.
  std::string explain() const;
  // The lanes of the programs: when each operator runs on which lane, where lanes wait, and schedules for more
  // lanes. As a page that needs nothing but itself, and as the JSON that is in it.
  std::string lanes_page(const std::string& title) const;
  std::string lanes_json() const;

 private:
  void watch_bytes(const void* value, size_t bytes);
  friend OVERDRIVE_API void save_steps(
      const std::string& path, const std::vector<std::pair<std::string, const CapturedStep*>>& functions,
      const SaveOptions& options);

  std::unique_ptr<replay::CapturedFunction> captured_;
};

// Several steps in one file, each a function under its name. Tensors that they share are shared in the file.
OVERDRIVE_API void save_steps(const std::string& path,
                              const std::vector<std::pair<std::string, const CapturedStep*>>& functions,
                              const SaveOptions& options = {});

namespace replay {

template <typename T>
constexpr bool is_tensor = std::is_same_v<std::decay_t<T>, at::Tensor>;

inline std::vector<at::Tensor> to_list(std::vector<at::Tensor> results) { return results; }  // A list.
inline std::vector<at::Tensor> to_list(at::Tensor result) { return {std::move(result)}; }    // One tensor.
template <typename... Results>  // A tuple of tensors.
std::vector<at::Tensor> to_list(std::tuple<Results...> results) {
  return std::apply([](auto&... each) { return std::vector<at::Tensor>{std::move(each)...}; }, results);
}

template <typename Result>  // The result in the form of the function. Throws where the list is too short.
Result from_list(std::vector<at::Tensor> list) {
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    return std::move(list.at(0));
  } else if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
    return list;
  } else if constexpr (!std::is_void_v<Result>) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Result(std::move(list.at(I))...);
    }(std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

template <typename Result, typename... Inputs>  // A captured step that is called as its function is.
class TypedStep : public CapturedStep {
  static constexpr bool kList = sizeof...(Inputs) == 1 && !(is_tensor<Inputs> && ...);
  static_assert(kList || (is_tensor<Inputs> && ...),
                "A captured function takes tensors, or one std::vector of them.");
  static_assert(sizeof...(Inputs) <= 64, "A captured function takes at most 64 arguments.");

 public:
  TypedStep(std::function<Result(Inputs...)> function, CaptureOptions options, bool is_part = false)
      : CapturedStep(as_list_function(std::move(function)), std::move(options), is_part) {}

  Result operator()(const std::decay_t<Inputs>&... inputs) {  // As call().
    if constexpr (kList) {
      return from_list<Result>(call(inputs...));
    } else {
      return from_list<Result>(call({inputs...}));
    }
  }

  // For what else is called as a step is.
  static Function as_list_function(std::function<Result(Inputs...)> function) {
    return [function = std::move(function)](const std::vector<at::Tensor>& inputs) -> std::vector<at::Tensor> {
      const auto invoke = [&]() -> Result {
        if constexpr (kList) {
          return function(inputs);
        } else {
          return with_each(function, inputs, std::index_sequence_for<Inputs...>());
        }
      };
      if constexpr (std::is_void_v<Result>) {
        invoke();
        return {};
      } else {
        return to_list(invoke());
      }
    };
  }

 private:
  template <size_t... I>  // Each as the function wants it: by value, by reference to a constant or to a copy.
  static Result with_each(const std::function<Result(Inputs...)>& function,
                          const std::vector<at::Tensor>& inputs, std::index_sequence<I...> /*places*/) {
    std::tuple<std::decay_t<Inputs>...> own{inputs[I]...};
    return std::apply([&](auto&... each) { return function(static_cast<Inputs>(each)...); }, own);
  }
};

template <typename Result, typename... Inputs>  // Names the types of a step for capture().
TypedStep<Result, Inputs...> typed_step(std::function<Result(Inputs...)> function, CaptureOptions options) {
  return {std::move(function), std::move(options)};
}

}  // namespace replay

// The function takes tensors, or one std::vector of them, and returns a tensor, a std::vector or std::tuple of
// tensors, or nothing.
template <typename F>
auto capture(F function, CaptureOptions options = {}) {
  return replay::typed_step(std::function(std::move(function)), std::move(options));
}

}  // namespace overdrive
