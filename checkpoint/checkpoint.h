// The entry to checkpointing: a part of the forward keeps its inputs only; the backward computes it again.
//
//   Tensor y = overdrive::checkpointed(block, x);                                // block(x), with less memory
//   auto [y, n] = overdrive::checkpointed({.checksum = true}, f, x, 3, mask);    // any arguments and results
//
// The function runs now, and again on the backward's thread with copies of the arguments (values.h). It must do
// the same both times, and outlive the graph in all it refers to. Capture parameters, pass activations: the
// early form's own backward ends at the arguments. checkpoint::checkpoint() is another name of the same.
#pragma once

#include "checkpoint/chain/sequential.h"
#include "checkpoint/early/early.h"
#include "checkpoint/region/dependency.h"
#include "checkpoint/region/options.h"
#include "checkpoint/region/phase.h"
#include "checkpoint/region/values.h"

#include <c10/util/Exception.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace overdrive::checkpoint {

namespace detail {
template <typename F>
inline constexpr bool kMayBeEmpty = std::is_pointer_v<F>;
template <typename Signature>
inline constexpr bool kMayBeEmpty<std::function<Signature>> = true;
}  // namespace detail

template <typename F, typename... Args>  // checkpointed(): what throws there throws here.
  requires std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>
auto checkpoint(const Options& options, F&& function, Args&&... arguments) {
  if constexpr (detail::kMayBeEmpty<std::decay_t<F>>) {
    TORCH_CHECK(function != nullptr, "checkpointed: the function is empty.");
  }
  using Result = std::decay_t<std::invoke_result_t<std::decay_t<F>&, std::decay_t<Args>&...>>;
  struct Call {
    std::decay_t<F> function;
    std::tuple<std::decay_t<Args>...> others;  // the arguments, without their tensors
    std::optional<Result>* first_result;
  };
  std::optional<Result> result;
  auto call =
      std::make_shared<Call>(Call{std::forward<F>(function), {std::forward<Args>(arguments)...}, &result});
  Tensors inputs;
  detail::take_tensors(call->others, inputs);
  Tensors outputs = detail::checkpoint(
      [call](const Tensors& tensors) {
        auto all = call->others;
        size_t next = 0;
        detail::put_tensors(all, tensors, next);
        Result value = std::apply(call->function, all);
        Tensors found;
        if (call->first_result != nullptr) {
          std::optional<Result>& kept = *std::exchange(call->first_result, nullptr);
          kept.emplace(std::move(value));
          detail::take_tensors(*kept, found);
        } else {
          detail::take_tensors(value, found);
        }
        return found;
      },
      std::move(inputs), options);
  size_t next = 0;
  detail::put_tensors(*result, outputs, next);
  return *std::move(result);
}

template <typename F, typename... Args>  // The same with the options as they are.
  requires std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>
auto checkpoint(F&& function, Args&&... arguments) {
  return checkpoint(Options{}, std::forward<F>(function), std::forward<Args>(arguments)...);
}

}  // namespace overdrive::checkpoint

namespace overdrive {

using checkpoint::checkpoint_sequential;
using checkpoint::is_checkpointing;
using checkpoint::is_recomputing;
using checkpoint::layers_of;
using checkpoint::Revolve;
using checkpoint::Segments;
using checkpoint::Selective;
using CheckpointForm = checkpoint::Form;
using CheckpointOptions = checkpoint::Options;

// f(arguments...), checkpointed. Its name is another than that of the namespace with all the rest.
template <typename F, typename... Args>
  requires std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>
auto checkpointed(const CheckpointOptions& options, F&& function, Args&&... arguments) {
  return checkpoint::checkpoint(options, std::forward<F>(function), std::forward<Args>(arguments)...);
}

template <typename F, typename... Args>  // The same with the options as they are.
  requires std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>
auto checkpointed(F&& function, Args&&... arguments) {
  return checkpoint::checkpoint(std::forward<F>(function), std::forward<Args>(arguments)...);
}

}  // namespace overdrive
