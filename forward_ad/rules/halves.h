// Two tensors of one shape whose memory lies side by side, so that one product can take both
// at once. Each has a storage of its own, of its own size: nothing tells it from any other
// tensor, whatever is done to it. The memory they share goes when both are gone. On the CPU
// only; any thread. Private.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::forward_ad {

struct Halves {
  at::Tensor first, second;

  // False where the second one would not be aligned as allocated memory is.
  static bool can_have(c10::IntArrayRef sizes, c10::ScalarType type);
  // Contiguous, not initialised.
  static Halves empty(c10::IntArrayRef sizes, c10::ScalarType type);
};

// Also true of two rows of a program's own tensor.
bool are_side_by_side(const at::Tensor& first, const at::Tensor& second);

// Both, which lie side by side, as the rows of one matrix. For use while they live: it does
// not own their memory.
at::Tensor rows_of_both(const at::Tensor& first, const at::Tensor& second, int64_t columns);

// A copy of what shares memory with its other half, which it would keep; else the tensor.
at::Tensor apart(const at::Tensor& tensor);

}  // namespace overdrive::forward_ad
