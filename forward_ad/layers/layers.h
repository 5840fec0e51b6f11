// LibTorch's layer stack (functorch) as far as forward mode needs it: the owner of a wrapper, steps below a
// layer, and scopes for layers of other kinds. The one place of this folder that reads LibTorch's private
// fields. The stack is thread-local, and so is everything here. Leaves levels to levels/. Private: its headers
// take seconds to parse.
#pragma once

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace overdrive::forward_ad {

using Layer = at::functorch::DynamicLayer;
using LayerStack = std::vector<Layer>;

// Note [Who a wrapper belongs to]
// LibTorch numbers layers by their position on the thread's stack. So layers of two threads, and layers opened
// one after the other, share numbers, and a wrapper of one passes for a wrapper of the other. The flag that
// says whether a layer is alive tells them apart: one heap cell per layer, shared by the layer, its copies on
// other threads and its wrappers. The address of the flag is the identity used in this folder.
using LayerLife = const bool*;

LayerLife life_of(const Layer& layer);
LayerLife life_of(const at::functorch::TensorWrapper& wrapper);

// The layer's position on this thread's stack, counted from 1; 0 when it is not there.
size_t position_here(LayerLife life);

// The living wrapper of a tensor, or null; `tensor` becomes the tensor below the dead wrappers.
at::functorch::TensorWrapper* living_wrapper(at::Tensor& tensor);

// The value of a wrapper of this layer; else the tensor itself.
at::Tensor unwrap_from(const at::Tensor& tensor, LayerLife life);

// The plain tensor that wrappers and batches of all layers hold in the end.
at::Tensor innermost_of(at::Tensor tensor);
// Whether the tensor is batched by a vmap layer, below any wrappers.
bool is_batched(at::Tensor tensor);

// Takes all but the lowest `keep` layers off the stack while it lives.
class BelowLayer {
 public:
  explicit BelowLayer(size_t keep);
  ~BelowLayer();
  BelowLayer(const BelowLayer&) = delete;
  BelowLayer& operator=(const BelowLayer&) = delete;

 private:
  LayerStack taken_;
};

// A reverse-mode layer, pushed and popped; grad mode is on in between.
class GradLayer {
 public:
  GradLayer();
  ~GradLayer();
  GradLayer(const GradLayer&) = delete;
  GradLayer& operator=(const GradLayer&) = delete;

  at::Tensor wrap(const at::Tensor& tensor) const;
  at::Tensor unwrap(const at::Tensor& tensor) const;

 private:
  size_t position_;
  bool grad_mode_;
  LayerLife life_;
};

// The GradLayer of this thread with this identity, also while an operator runs below it and it is off the
// stack.
std::optional<Layer> own_grad_layer(LayerLife life);

// A layer that hides one dimension of size `batch`.
class VmapLayer {
 public:
  // Random operators give each row the same numbers, unless told otherwise: the rows are columns of one
  // Jacobian.
  explicit VmapLayer(int64_t batch, at::functorch::RandomnessType = at::functorch::RandomnessType::Same);
  ~VmapLayer();
  VmapLayer(const VmapLayer&) = delete;
  VmapLayer& operator=(const VmapLayer&) = delete;

  // Hides a dimension.
  at::Tensor wrap(const at::Tensor& tensor, int64_t dim = 0) const;
  bool hides_one_of(const at::Tensor& tensor) const;
  // Shows the dimension again, as dimension `dim` from 0 on; a tensor that does not have it is repeated.
  at::Tensor unwrap(const at::Tensor& tensor, int64_t dim = 0) const;

 private:
  int64_t batch_;
  size_t position_;
};

// Takes layers off the top until `keep` are left, and marks them dead.
void drop_layers(size_t keep) noexcept;

}  // namespace overdrive::forward_ad
