// Elementwise arithmetic over contiguous memory. `out` may be the first operand: then the work is in place.
// Every element is one sequence of IEEE operations in the order that LibTorch's kernels have, without
// contraction, so the bits are theirs on every processor. No state, any thread; one thread does all of a call.
// Knows no tensor: captured steps use these functions too. For float and double.
#pragma once

#include "engine/base/export.h"

#include <cstdint>

namespace overdrive::kernels {

template <typename T>
struct Loops {
  void (*multiply)(T* out, const T* a, const T* b, int64_t n);
  void (*multiply_by)(T* out, const T* a, T factor, int64_t n);
  void (*divide)(T* out, const T* a, const T* b, int64_t n);
  void (*divide_by)(T* out, const T* a, T divisor, int64_t n);
  void (*negate)(T* out, const T* a, int64_t n);
  // Of two NaNs the result is that of `b`, or of `a` on 64-bit ARM: the host multiplies `b` by one and adds in
  // one instruction, which the processors define in these ways.
  void (*add)(T* out, const T* a, const T* b, int64_t n);
  void (*fill)(T* out, T value, int64_t n);

  // Whether a NaN is among them. LibTorch's product of two NaNs has the sign of the one or of the other, by the
  // place in the array, so a product is the same bit for bit only where at most one factor is a NaN.
  bool (*has_nan)(const T* a, int64_t n);

  // Backwards of functions: `gradient` times the derivative, from the function's result or its argument.
  void (*relu_backward)(T* out, const T* gradient, const T* result, int64_t n);
  void (*sigmoid_backward)(T* out, const T* gradient, const T* result, int64_t n);
  void (*sqrt_backward)(T* out, const T* gradient, const T* result, int64_t n);
  void (*square_backward)(T* out, const T* gradient, const T* x, int64_t n);
  void (*cube_backward)(T* out, const T* gradient, const T* x, int64_t n);
  // Of factor * (x - y)^2 / 2 with respect to x, for one gradient of all elements.
  void (*square_error_backward)(T* out, const T* x, const T* y, T factor, T gradient, int64_t n);
  // Of x / y with respect to y.
  void (*divisor_backward)(T* out, const T* gradient, const T* x, const T* y, int64_t n);
};

// Those for the widest vectors that this processor has.
template <typename T>
OVERDRIVE_API const Loops<T>& loops();
// The same for the type of some memory.
template <typename T>
const Loops<T>& loops(const T* /*memory*/) {
  return loops<T>();
}
// Those that every processor has, for comparisons.
template <typename T>
OVERDRIVE_API const Loops<T>& portable_loops();

}  // namespace overdrive::kernels
