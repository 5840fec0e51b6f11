#include "engine/kernels/elementwise.h"

namespace overdrive::kernels {

template <typename T>
void multiply(T* out, const T* a, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

template <typename T>
void multiply_by(T* out, const T* a, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * factor;
}

template <typename T>
void divide(T* out, const T* a, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] / b[i];
}

template <typename T>
void divide_by(T* out, const T* a, T divisor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] / divisor;
}

template <typename T>
void negate(T* out, const T* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = -a[i];
}

// Chooses between values and not between computations: compilers vectorise a choice of what was loaded anyway.
template <typename T>
void add_into(T* sum, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T first = sum[i], second = b[i];
    sum[i] = (second != second ? second : first) + second;
  }
}

template <typename T>
void fill(T* out, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

template <typename T>
bool has_nan(const T* a, int64_t n) {
  int found = 0;  // no way out of the loop: it is vectorised
  for (int64_t i = 0; i < n; ++i) found |= a[i] != a[i];
  return found != 0;
}

// A NaN in the result lets the gradient pass, as in the host's comparison.
template <typename T>
void relu_backward(T* out, const T* gradient, const T* result, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T passes = gradient[i];  // read in any case: without a branch
    out[i] = result[i] <= T(0) ? T(0) : passes;
  }
}

template <typename T>
void sigmoid_backward(T* out, const T* gradient, const T* result, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = gradient[i] * (T(1) - result[i]) * result[i];
}

template <typename T>
void sqrt_backward(T* out, const T* gradient, const T* result, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = gradient[i] / (result[i] * T(2));
}

template <typename T>
void square_backward(T* out, const T* gradient, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = gradient[i] * (x[i] * T(2));
}

template <typename T>
void cube_backward(T* out, const T* gradient, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = gradient[i] * ((x[i] * x[i]) * T(3));
}

template <typename T>
void divisor_backward(T* out, const T* gradient, const T* x, const T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = -gradient[i] * ((x[i] / y[i]) / y[i]);
}

template <typename T>
void square_error_backward(T* out, const T* x, const T* y, T factor, T gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (factor * (x[i] - y[i])) * gradient;
}

#define OVERDRIVE_KERNELS_OF(T)                                              \
  template void multiply(T*, const T*, const T*, int64_t);                   \
  template void multiply_by(T*, const T*, T, int64_t);                       \
  template void divide(T*, const T*, const T*, int64_t);                     \
  template void divide_by(T*, const T*, T, int64_t);                         \
  template void negate(T*, const T*, int64_t);                               \
  template void add_into(T*, const T*, int64_t);                             \
  template void fill(T*, T, int64_t);                                        \
  template bool has_nan(const T*, int64_t);                                  \
  template void relu_backward(T*, const T*, const T*, int64_t);              \
  template void sigmoid_backward(T*, const T*, const T*, int64_t);           \
  template void sqrt_backward(T*, const T*, const T*, int64_t);              \
  template void square_backward(T*, const T*, const T*, int64_t);            \
  template void cube_backward(T*, const T*, const T*, int64_t);              \
  template void divisor_backward(T*, const T*, const T*, const T*, int64_t); \
  template void square_error_backward(T*, const T*, const T*, T, T, int64_t);
OVERDRIVE_KERNELS_OF(float)
OVERDRIVE_KERNELS_OF(double)
#undef OVERDRIVE_KERNELS_OF

}  // namespace overdrive::kernels
