// Models whose training step is captured, each the smallest of its kind that people train on a CPU. A model
// owns its parameters and its data; one thread at a time. Knows no engine.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::bench {

struct CaptureModel {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> inputs;
  std::shared_ptr<torch::optim::Optimizer> optimizer = {};
  std::function<at::Tensor(const std::vector<at::Tensor>&)> loss_of = {};

  // One whole step on the inputs.
  at::Tensor step(const std::vector<at::Tensor>& given) const;
};

struct CaptureModelKind {
  std::string name;
  std::function<CaptureModel()> build;
};

const std::vector<CaptureModelKind>& capture_models();
// Those that have parts which do not know each other, and some that have few.
const std::vector<CaptureModelKind>& models_for_lanes();

}  // namespace overdrive::bench
