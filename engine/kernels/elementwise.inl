// The loops of elementwise.h. A source includes them once for each instruction set that it is compiled with;
// each has its own copies, so none is merged with another's.
#include "engine/kernels/elementwise.h"

namespace overdrive::kernels {
namespace {

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
void add(T* out, const T* a, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T first = a[i], second = b[i];
#if defined(__aarch64__)
    out[i] = first + (first != first ? first : second);
#else
    out[i] = (second != second ? second : first) + second;
#endif
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

template <typename T>
constexpr Loops<T> kLoops{
    .multiply = multiply<T>,
    .multiply_by = multiply_by<T>,
    .divide = divide<T>,
    .divide_by = divide_by<T>,
    .negate = negate<T>,
    .add = add<T>,
    .fill = fill<T>,
    .has_nan = has_nan<T>,
    .relu_backward = relu_backward<T>,
    .sigmoid_backward = sigmoid_backward<T>,
    .sqrt_backward = sqrt_backward<T>,
    .square_backward = square_backward<T>,
    .cube_backward = cube_backward<T>,
    .square_error_backward = square_error_backward<T>,
    .divisor_backward = divisor_backward<T>,
};

}  // namespace
}  // namespace overdrive::kernels
