// Calls a hook's unpack and holds it to what it promised. On the thread that asks.
#pragma once

#include "engine/base/torch_types.h"
#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

// What pack() was given, without the memory.
struct PackedAs {
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

// As LibTorch's ops make tensors: one of inference mode has no version and ends no derivative, one of zeros has
// no memory, and conjugation is not for those who share it.
at::Tensor ordinary(at::Tensor tensor);

// The tensor, with the strides given; an error that names hook, node and both tensors when it is another.
at::Tensor checked_unpack(SavedTensorHooks& hooks, Packed& packed, const UnpackInfo& info, const PackedAs& as);

}  // namespace overdrive::hooks
