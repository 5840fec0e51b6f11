// The chain rule for a function g of each element: g(x)' = g'(x) x' and g(x)'' = g'(x) x'' + g''(x) x'^2. The
// files of rules give the formulas. Private.
#pragma once

#include "forward_ad/taylor/jet.h"

#include <ATen/ATen.h>

namespace overdrive::forward_ad::taylor {

// The input of a formula: the argument with its derivatives, and the value.
struct Point {
  at::Tensor x, y;
  Derivatives of_x;
};

// With the slope g' and the curve g''.
inline Derivatives chain(const Point& at, const at::Tensor& slope, const at::Tensor& curve) {
  at::Tensor bent = curve * at.of_x.first.square();
  return {slope * at.of_x.first,
          at.of_x.second.defined() ? at::addcmul(bent, slope, at.of_x.second) : std::move(bent)};
}

// Where a kernel multiplies by g' at once, and g'' = g' q: x'' + q x'^2 goes through the kernel.
template <typename TimesSlope>
Derivatives chain(const Point& at, const at::Tensor& quotient, at::Scalar factor, TimesSlope times_slope) {
  at::Tensor square = at.of_x.first.square();
  at::Tensor bent = at.of_x.second.defined() ? at::addcmul(at.of_x.second, quotient, square, factor)
                                             : at::mul(quotient, square).mul(factor);
  return {times_slope(at.of_x.first), times_slope(bent)};
}

// With g'' = 0.
template <typename TimesSlope>
Derivatives straight(const Point& at, TimesSlope times_slope) {
  return {times_slope(at.of_x.first), at.of_x.second.defined() ? times_slope(at.of_x.second) : at::Tensor()};
}

// The kernel of an operator on one tensor and numbers; `formula` has the parameters (Point, numbers...).
template <typename Op, auto formula, typename Schema = typename Op::schema>
struct Unary;
template <typename Op, auto formula, typename... Numbers>
struct Unary<Op, formula, at::Tensor(const at::Tensor&, Numbers...)> {
  static at::Tensor run(const at::Tensor& x, Numbers... numbers) {
    const Derivatives* known = derivatives_of(x);
    if (known == nullptr) give_up("a mask has derivatives");
    const Derivatives of_x = *known;
    const InsideRule inside;
    at::Tensor y = Op::call(x, numbers...);
    return with_derivatives(y, formula(Point{x, y, of_x}, numbers...));
  }
};

template <typename Op, auto formula>
constexpr auto rule() {
  return TORCH_FN((Unary<Op, formula>::run));
}

}  // namespace overdrive::forward_ad::taylor
