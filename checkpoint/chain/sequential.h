// A chain of layers, checkpointed as a whole.
//
//   Tensor y = checkpoint_sequential(layers_of(*sequential), x, Segments{8});
//   Tensor y = checkpoint_sequential(layers, x, Revolve{20});
//   Tensor y = checkpoint_sequential(layers, x, Selective{keep_what_matmuls_made});
//
// Any thread. The backward calls the layers again, on its thread, so they must live until then: copies of
// module holders do.
#pragma once

#include "checkpoint/chain/schedule.h"
#include "checkpoint/region/options.h"
#include "engine/base/export.h"

#include <variant>
#include <vector>

namespace overdrive::checkpoint {

// The whole chain is a region on demand, in which the policy chooses tensor by tensor.
struct Selective {
  Policy policy;
  hooks::HooksPtr packer = nullptr;  // for Choice::kPack
};

using ChainSchedule = std::variant<Segments, Revolve, Selective>;

// The last of several segments is not checkpointed: it would run again at once. With Revolve each layer is a
// region of its own.
OVERDRIVE_API at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, const at::Tensor& input,
                                               const ChainSchedule& schedule, const Options& options = {});

namespace detail {
// One region, in the form that the options name.
OVERDRIVE_API Tensors checkpoint(Function fn, Tensors inputs, const Options& options);
}  // namespace detail

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
