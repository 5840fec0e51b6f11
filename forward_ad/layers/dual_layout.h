// The memory of the two halves of a dual. A tangent has the layout of its primal, so that a view of the one is
// a view of the other (LibTorch's rule); and both may lie side by side, so that one product takes both.
// Functions on tensors; any thread. Private.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::forward_ad {

// LibTorch's idea of one layout. It asserts this layout for some views, and does not make it.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

// The primal, or a copy of it if no tangent with values of its own can lie like it. Elements that share memory,
// as after expand(), have one place for several numbers; nobody can write into such a primal anyway. A lazy
// conjugation or negation of one of the two also needs a copy.
at::Tensor primal_that_takes(const at::Tensor& primal, const at::Tensor& tangent);

// The tangent, or a copy of it in the layout of the primal.
at::Tensor with_layout_of(const at::Tensor& primal, const at::Tensor& tangent);

// A value and its tangent whose memory lies side by side, so that one product takes both at once. Each has a
// storage of its own size, so nothing tells it from another tensor. The common memory goes with the later of
// the two. CPU only.
struct Halves {
  at::Tensor first, second;

  // False when the second half would not be aligned as allocated memory is.
  static bool can_have(c10::IntArrayRef sizes, c10::ScalarType type);
  // Contiguous, not initialised.
  static Halves empty(c10::IntArrayRef sizes, c10::ScalarType type);
};

// Also true of two rows of a program's own tensor.
bool are_side_by_side(const at::Tensor& first, const at::Tensor& second);

// Both halves as the rows of one matrix, which does not own their memory.
at::Tensor rows_of_both(const at::Tensor& first, const at::Tensor& second, int64_t columns);

// The tensor, or a copy of a half: a half keeps the memory of the other.
at::Tensor apart(const at::Tensor& tensor);

}  // namespace overdrive::forward_ad
