// Elementwise arithmetic over contiguous memory. `out` may be the first operand: then the work is in place.
// Every element is one sequence of IEEE operations in the order that LibTorch's kernels have, without
// contraction, so the bits are theirs. No state, any thread; one thread does all of a call. Knows no tensor:
// captured steps use these functions too. Instantiated for float and double.
#pragma once

#include <cstdint>

namespace overdrive::kernels {

template <typename T>
void multiply(T* out, const T* a, const T* b, int64_t n);
template <typename T>
void multiply_by(T* out, const T* a, T factor, int64_t n);
template <typename T>
void divide(T* out, const T* a, const T* b, int64_t n);
template <typename T>
void divide_by(T* out, const T* a, T divisor, int64_t n);
template <typename T>
void negate(T* out, const T* a, int64_t n);
// Of two NaNs the result is that of `b`: the host multiplies it by one and adds in one instruction.
template <typename T>
void add_into(T* sum, const T* b, int64_t n);
template <typename T>
void fill(T* out, T value, int64_t n);

// Whether a NaN is among them. LibTorch's product of two NaNs has the sign of the one or of the other, by the
// place in the array, so a product is the same bit for bit only where at most one factor is a NaN.
template <typename T>
bool has_nan(const T* a, int64_t n);

// Backwards of functions: `gradient` times the derivative, from the function's result or its argument.
template <typename T>
void relu_backward(T* out, const T* gradient, const T* result, int64_t n);
template <typename T>
void sigmoid_backward(T* out, const T* gradient, const T* result, int64_t n);
template <typename T>
void sqrt_backward(T* out, const T* gradient, const T* result, int64_t n);
template <typename T>
void square_backward(T* out, const T* gradient, const T* x, int64_t n);
template <typename T>
void cube_backward(T* out, const T* gradient, const T* x, int64_t n);
// Of factor * (x - y)^2 / 2 with respect to x, for one gradient of all elements.
template <typename T>
void square_error_backward(T* out, const T* x, const T* y, T factor, T gradient, int64_t n);
// Of x / y with respect to y.
template <typename T>
void divisor_backward(T* out, const T* gradient, const T* x, const T* y, int64_t n);

}  // namespace overdrive::kernels
