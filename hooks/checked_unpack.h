// Calls a hook's unpack and holds it to what it promised. On the thread that asks.
#pragma once

#include "engine/base/torch_types.h"
#include "hooks/saved_tensor_hooks.h"

namespace overdrive::hooks {

// What pack() was given, without the memory.
struct PackedAs {
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

// The tensor, with the strides given; an error that names hook, node and both tensors when it is another.
at::Tensor checked_unpack(SavedTensorHooks& hooks, Packed& packed, const UnpackInfo& info, const PackedAs& as);

}  // namespace overdrive::hooks
