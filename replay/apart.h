// Code of a captured step that runs eagerly in every call, in replays too: printing, logging, a step of an
// environment. overdrive::Apart is made outside of the captured function and called inside, with tensors of the
// step; it gets copies of them, and copies of what it returns are values of the rest. One thread at a time.
#pragma once

#include "replay/capture.h"

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace overdrive {

namespace replay {

struct ApartFunction;

// `identity`: what two recordings know the function by; null: itself.
OVERDRIVE_API std::shared_ptr<ApartFunction> apart_function(Function function, const void* identity);
// Runs it. A recording keeps it, and each replay runs it at this place.
OVERDRIVE_API std::vector<at::Tensor> run_apart(const std::shared_ptr<ApartFunction>& function,
                                                const std::vector<at::Tensor>& inputs);
// It is called no more.
OVERDRIVE_API void end_apart(ApartFunction& function);

// The signature of a function object, from the std::function that holds it.
template <typename Function>
struct SignatureOf;
// The same, of std::function itself.
template <typename Signature>
struct SignatureOf<std::function<Signature>> {
  using Type = Signature;
};
template <typename F>
using Signature = typename SignatureOf<decltype(std::function(std::declval<F>()))>::Type;

}  // namespace replay

// A function of tensors that runs apart. It outlives the captured step that calls it; what it refers to does,
// too.
template <typename Signature>
class Apart;

// The same, by its result and its inputs.
template <typename Result, typename... Inputs>
class Apart<Result(Inputs...)> {
 public:
  // Keeps the function, and whatever it captures.
  template <typename F>
  explicit Apart(F function)
      : function_(replay::apart_function(replay::TypedStep<Result, Inputs...>::as_list_function(
                                             std::function<Result(Inputs...)>(std::move(function))),
                                         nullptr)) {}
  ~Apart() { replay::end_apart(*function_); }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

  Result operator()(const std::decay_t<Inputs>&... inputs) const {
    return replay::from_list<Result>(replay::run_apart(function_, {inputs...}));
  }

 private:
  const std::shared_ptr<replay::ApartFunction> function_;
};

// Apart(function) has the function's own signature.
template <typename F>
Apart(F) -> Apart<replay::Signature<F>>;

// The same for a function that captures nothing, and need not be made outside.
template <typename F, typename... Tensors>
auto apart(F function, const Tensors&... tensors) {
  static_assert(
      std::is_empty_v<F> || std::is_function_v<std::remove_pointer_t<F>>,
      "A replay calls the function when the variables that it captures are gone: give tensors of the step as "
      "arguments, and make an overdrive::Apart outside of the captured function for everything else.");
  static const char identity = 0;  // one for each type
  using Result = std::invoke_result_t<F, const Tensors&...>;
  auto as_list = replay::TypedStep<Result, std::conditional_t<true, at::Tensor, Tensors>...>::as_list_function(
      std::function<Result(std::conditional_t<true, at::Tensor, Tensors>...)>(std::move(function)));
  return replay::from_list<Result>(
      replay::run_apart(replay::apart_function(std::move(as_list), &identity), {tensors...}));
}

}  // namespace overdrive
