// A part of a program that is recorded once and replayed afterwards, forward and backward, with eager's bits:
// overdrive::captured(model), overdrive::captured(optimizer) or overdrive::captured(function). Called as the
// model or the function is; its outputs have a graph, in which one node stands for the part.
// docs/guide/parts.md says what is replayed and what is not.
#pragma once

#include "replay/capture.h"
#include "replay/captured_optimizer.h"

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>

namespace overdrive {

namespace replay {

// The part that calls this function.
template <typename Result, typename... Inputs>
TypedStep<Result, Inputs...> typed_part(std::function<Result(Inputs...)> function, CaptureOptions options) {
  return {std::move(function), std::move(options), true};
}

// The part that calls this module's forward().
template <typename Module, typename Result, typename... Inputs>
auto part_of_module(std::shared_ptr<Module> module, Result (Module::*forward)(Inputs...),
                    CaptureOptions options) {
  return typed_part(std::function<Result(Inputs...)>([module, forward](Inputs... inputs) -> Result {
                      return (module.get()->*forward)(std::forward<Inputs>(inputs)...);
                    }),
                    std::move(options));
}

template <typename Module>  // One forward(), which is no template.
concept HasOneForward = requires { &Module::forward; };

}  // namespace replay

// The function takes tensors and returns a tensor, a std::vector or std::tuple of tensors.
template <typename F>
  requires requires(F function) { std::function(std::move(function)); }
auto captured(F function, CaptureOptions options = {}) {
  return replay::typed_part(std::function(std::move(function)), std::move(options));
}

// A module; train() and eval() of it and of those in it are looked at in every call.
template <typename Module>
  requires std::is_base_of_v<torch::nn::Module, Module>
auto captured(std::shared_ptr<Module> module, CaptureOptions options = {}) {
  TORCH_CHECK(module, "captured() was given a null module.");
  options.modules.push_back(module);
  if constexpr (replay::HasOneForward<Module>) {
    return replay::part_of_module(std::move(module), &Module::forward, std::move(options));
  } else {  // torch::nn::Sequential
    return replay::typed_part(std::function<at::Tensor(const at::Tensor&)>(
                                  [module](const at::Tensor& input) { return module->forward(input); }),
                              std::move(options));
  }
}

// The module that a holder holds, as torch::nn::Linear is one.
template <typename Module>
auto captured(torch::nn::ModuleHolder<Module> module, CaptureOptions options = {}) {
  return captured(module.ptr(), std::move(options));
}

}  // namespace overdrive
