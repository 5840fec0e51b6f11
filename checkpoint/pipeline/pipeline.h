// A chain of layers split over devices, which work on micro-batches at the same time. A stage keeps its inputs
// only, and runs again before its gradient arrives.
//
//   Pipeline pipeline(stages_of(*sequential, {2, 3}, {gpu0, gpu1}), {.chunks = 8});
//   pipeline.forward(x).sum().backward();
//
// Owns its layers together with its graphs. One thread at a time, which runs the forward; in the backward the
// engine has a worker for each device.
#pragma once

#include "checkpoint/chain/sequential.h"
#include "checkpoint/region/options.h"
#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

struct PipelineOptions {  // How a pipeline cuts a batch and checkpoints its stages.
  // Micro-batches; the batch is cut along its first dimension as evenly as possible.
  int64_t chunks = 1;
  // The micro-batches that are checkpointed. The last one would run again at once.
  enum class Checkpointed { kAlways, kExceptLast, kNever } checkpointed = Checkpointed::kExceptLast;
  // Run a stage again while the stage behind it makes the gradient; otherwise when the gradient is there.
  bool recompute_before_gradient = true;
  // Of each stage; the name gets the stage's number. The form is the early one.
  Options region = {};
};

// The part of the chain on one device.
struct Stage {
  std::vector<Layer> layers;
  at::Device device{at::kCPU};
  std::vector<at::Tensor> parameters;  // to notice a parameter of two stages
  // The reason why the stage cannot work on parts of a batch now, or "". Asked before each forward.
  std::function<std::string()> obstacle = {};
};

class OVERDRIVE_API Pipeline {  // The chain on its devices. Copies share the layers.
 public:
  explicit Pipeline(std::vector<Stage> stages, PipelineOptions options = {});

  // The outputs of the micro-batches, one behind the other, on the last stage's device.
  at::Tensor forward(const at::Tensor& batch) const;

 private:
  struct MicroBatch;

  std::vector<MicroBatch> cut(const at::Tensor& batch) const;
  void step(size_t stage, MicroBatch& part) const;

  std::vector<std::shared_ptr<const Stage>> stages_;
  PipelineOptions options_;
};

namespace detail {

// Throws when the layers cannot be cut like this, or when a part would be on no device.
OVERDRIVE_API void check_split(size_t layers, const std::vector<int64_t>& balance,
                               const std::vector<at::Device>& devices);
// Throws when two stages have a parameter in common.
OVERDRIVE_API void check_unshared(const std::vector<Stage>& stages);

// The reason why a module needs the whole batch: statistics of a micro-batch are other numbers.
template <typename ModulePtr>
std::string batch_statistics_in(const ModulePtr& module, const std::string& name) {
  for (const auto& part : module->named_modules(name)) {
    const bool counts = part.value()->named_buffers(/*recurse=*/false).contains("running_mean");
    const bool is_batch_norm = part.value()->name().find("BatchNorm") != std::string::npos;
    if (part.value()->is_training() && (counts || is_batch_norm)) {
      return "module " + part.key() + " (" + part.value()->name() + ") is in training mode and takes its " +
             "statistics of each micro-batch instead of the batch. Call eval() on it, or use a normalisation " +
             "that does not depend on the batch, such as GroupNorm or LayerNorm";
    }
  }
  return "";
}

template <typename ModulePtr>
void move(const ModulePtr& module, const at::Device& device) {
  const auto elsewhere = [&device](const at::Tensor& tensor) { return tensor.device() != device; };
  const auto parameters = module->parameters(), buffers = module->buffers();
  if (std::any_of(parameters.begin(), parameters.end(), elsewhere) ||
      std::any_of(buffers.begin(), buffers.end(), elsewhere)) {
    module->to(device);
  }
}

}  // namespace detail

// Cuts a torch::nn::Sequential: balance[i] layers go to devices[i], and are moved there.
template <typename Sequential>
std::vector<Stage> stages_of(Sequential& sequential, const std::vector<int64_t>& balance,
                             const std::vector<at::Device>& devices) {
  detail::check_split(sequential.size(), balance, devices);
  std::vector<Stage> stages;
  auto next = sequential.begin();
  size_t index = 0;
  for (size_t i = 0; i < balance.size(); ++i) {
    Stage stage{.layers = {}, .device = devices[i], .parameters = {}};
    std::vector<std::function<std::string()>> obstacles;
    for (int64_t k = 0; k < balance[i]; ++k, ++next, ++index) {
      auto layer = *next;
      auto module = layer.ptr();
      for (const at::Tensor& parameter : module->parameters()) stage.parameters.push_back(parameter);
      obstacles.push_back(
          [module, name = std::to_string(index)] { return detail::batch_statistics_in(module, name); });
      stage.layers.push_back([layer](const at::Tensor& x) mutable { return layer.forward(x); });
    }
    stage.obstacle = [obstacles] {
      for (const auto& obstacle : obstacles) {
        if (std::string text = obstacle(); !text.empty()) return text;
      }
      return std::string();
    };
    stages.push_back(std::move(stage));
  }
  detail::check_unshared(stages);
  next = sequential.begin();
  for (const Stage& stage : stages) {
    for (size_t k = 0; k < stage.layers.size(); ++k, ++next) detail::move(next->ptr(), stage.device);
  }
  return stages;
}

}  // namespace overdrive::checkpoint
