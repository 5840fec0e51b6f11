// A chain of layers, checkpointed as a whole.
//
//   Tensor y = checkpoint_sequential(layers_of(*sequential), x, Segments{8});
//   Tensor y = checkpoint_sequential(layers, x, Revolve{20});
//
// Any thread. The layers are called again in the backward, on its thread, and must live until then: copies
// of module holders do.
#pragma once

#include "checkpoint/options.h"
#include "checkpoint/schedule.h"
#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <variant>
#include <vector>

namespace overdrive::checkpoint {

using Layer = std::function<at::Tensor(const at::Tensor&)>;
using Schedule = std::variant<Segments, Revolve>;

// The last of several segments is not checkpointed: it would run again at once. With Revolve each layer is a
// region of its own.
OVERDRIVE_API at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, const at::Tensor& input,
                                               const Schedule& schedule, const Options& options = {});

// The layers of a torch::nn::Sequential, or of another container of modules with forward(). They share the
// modules with it.
template <typename Container>
std::vector<Layer> layers_of(Container& container) {
  std::vector<Layer> layers;
  for (auto& module : container) {
    layers.push_back([module](const at::Tensor& x) mutable { return module.forward(x); });
  }
  return layers;
}

}  // namespace overdrive::checkpoint
