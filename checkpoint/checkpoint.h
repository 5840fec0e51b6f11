// The door to checkpointing: a part of the forward keeps its inputs only; the backward computes it again.
//
//   Tensor y = checkpoint(block, x);                                   // block(x), with less memory
//   auto [y, n] = checkpoint({.checksum = true}, f, x, 3, mask);       // any arguments and results
//
// The function runs now, and again on the backward's thread with copies of the arguments (values.h). It must do
// the same both times, and outlive the graph in all it refers to. Capture parameters, pass activations: the
// early form's own backward ends at the arguments.
#pragma once

#include "checkpoint/chain/sequential.h"
#include "checkpoint/early/early.h"
#include "checkpoint/region/dependency.h"
#include "checkpoint/region/options.h"
#include "checkpoint/region/phase.h"
#include "checkpoint/region/values.h"

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace overdrive::checkpoint {

template <typename F, typename... Args>
  requires std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>
auto checkpoint(const Options& options, F&& function, Args&&... arguments) {
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

template <typename F, typename... Args>
  requires std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>
auto checkpoint(F&& function, Args&&... arguments) {
  return checkpoint(Options{}, std::forward<F>(function), std::forward<Args>(arguments)...);
}

}  // namespace overdrive::checkpoint
