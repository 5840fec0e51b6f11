// Calls of a hook: the guard around code of a hook, and the checks of its options, its input and its result.
// Owned by nobody; each function works on the thread that calls it. Leaves to the callers when a hook is
// called.
#pragma once

#include "engine/base/torch_types.h"
#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

// While one lives, tensors that are saved on this thread are not given to hooks, because the code of a hook
// saves them. A scope that this code opens counts all the same.
class InsideHook {
 public:
  InsideHook() : depth_(depth()) { ++depth_; }
  ~InsideHook() { --depth_; }
  InsideHook(const InsideHook&) = delete;
  InsideHook& operator=(const InsideHook&) = delete;

  static bool anywhere() { return depth() != 0; }

 private:
  friend class ScopedHooks;
  static int& depth();

  int& depth_;  // looked up once
};

// The looks of the tensor that pack() was given.
struct PackedAs {
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

// The tensor in the form that LibTorch's operators make: outside of inference mode (which has no versions),
// with memory instead of symbolic zeros, without lazy conjugation and negation.
at::Tensor ordinary(at::Tensor tensor);

// Calls unpack(). Returns the tensor with the given strides; an error names hook, node and both tensors when
// the hook returned another one.
at::Tensor checked_unpack(SavedTensorHooks& hooks, Packed& packed, const UnpackInfo& info, const PackedAs& as);

// The beginning of the error for a pack() that wrote to its input, in stock's words.
inline constexpr const char* kPackWroteToItsInput =
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not "
    "be "
    "modified by in-place operations as this can lead to unexpected side-effects. ";

inline void check_not_negative(const char* packer, const char* option, int64_t value) {
  TORCH_CHECK(value >= 0, packer, "() was given ", option, " = ", value, "; it takes 0 and more.");
}

}  // namespace overdrive::hooks
