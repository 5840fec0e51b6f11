// A part of a program that is recorded once and replayed afterwards, forward and backward, with eager's bits:
// overdrive::captured(model), overdrive::captured(optimizer) or overdrive::captured(function). Called as the
// model or the function is; its outputs have a graph, in which one node stands for the part.
// docs/guide/parts.md says what is replayed and what is not.
#pragma once

#include "replay/capture.h"

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

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

// An optimizer whose step() is replayed. It must outlive this.
class CapturedOptimizer {
 public:
  explicit CapturedOptimizer(torch::optim::Optimizer& optimizer, CaptureOptions options = {})
      : optimizer_(&optimizer), update_(update_of(optimizer), with(optimizer, std::move(options))) {}

  // The optimizer's update, replayed.
  void step() {
    std::vector<at::Tensor> gradients;
    size_t bytes = 0;
    for (const auto& group : optimizer_->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        gradients.push_back(parameter.grad());
        bytes += parameter.grad().nbytes();
      }
    }
    if (bytes <= kMostBytes) {
      update_.call(gradients);
    } else {
      optimizer_->step();
    }
  }
  // As the optimizer's own.
  void zero_grad(bool set_to_none = true) { optimizer_->zero_grad(set_to_none); }

  // The captured step that this is, with its counters, refusal() and explain().
  CapturedStep& update() { return update_; }

 private:
  static replay::Function update_of(torch::optim::Optimizer& optimizer) {
    return [&optimizer](const std::vector<at::Tensor>&) {
      // step() reaches parameters by data() alone, and a recording wants to see them.
      for (const auto& group : optimizer.param_groups()) {
        for (const at::Tensor& parameter : group.params()) (void)parameter.detach();
      }
      optimizer.step();
      return std::vector<at::Tensor>();
    };
  }
  static CaptureOptions with(torch::optim::Optimizer& optimizer, CaptureOptions options) {
    options.optimizer = &optimizer;
    return options;
  }

  // A replay copies the gradients first. Of more than this, the copies cost more than the update's overhead.
  static constexpr size_t kMostBytes = size_t{512} << 10;

  torch::optim::Optimizer* optimizer_;
  CapturedStep update_;
};

// An optimizer: step() of what this returns is replayed.
inline CapturedOptimizer captured(torch::optim::Optimizer& optimizer, CaptureOptions options = {}) {
  return CapturedOptimizer(optimizer, std::move(options));
}

// The module that a holder holds, as torch::nn::Linear is one.
template <typename Module>
auto captured(torch::nn::ModuleHolder<Module> module, CaptureOptions options = {}) {
  return captured(module.ptr(), std::move(options));
}

}  // namespace overdrive
