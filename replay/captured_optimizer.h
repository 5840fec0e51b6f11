// An optimizer whose step() is replayed, as captured.h makes it.
#pragma once

#include "replay/capture.h"

#include <torch/optim/optimizer.h>

namespace overdrive {

// Stands beside an optimizer of LibTorch, which must outlive it. Of one thread at a time.
class OVERDRIVE_API CapturedOptimizer {
 public:
  explicit CapturedOptimizer(torch::optim::Optimizer& optimizer, CaptureOptions options = {});

  // The optimizer's update, replayed. A closure is called first, with gradients on, and its loss returned; an
  // optimizer that calls its closure as often as it likes, as LBFGS does, does so.
  at::Tensor step(const torch::optim::Optimizer::LossClosure& closure = nullptr);
  // As the optimizer's own.
  void zero_grad(bool set_to_none = true) { optimizer_->zero_grad(set_to_none); }

  // The captured step that this is, with its counters, refusal() and explain().
  CapturedStep& update() { return update_; }

 private:
  void update_parameters();

  torch::optim::Optimizer* optimizer_;
  CapturedStep update_;
};

// An optimizer: step() of what this returns is replayed.
inline CapturedOptimizer captured(torch::optim::Optimizer& optimizer, CaptureOptions options = {}) {
  return CapturedOptimizer(optimizer, std::move(options));
}

}  // namespace overdrive
