// Functions of each element, from the exponential to the power.
#include "forward_ad/taylor/chain.h"

#include <cmath>
#include <numbers>

namespace overdrive::forward_ad::taylor {
namespace {
using at::Tensor;
using c10::Scalar;

Derivatives exp(const Point& at) { return chain(at, at.y, at.y); }
Derivatives expm1(const Point& at) {
  Tensor slope = at.y + 1;
  return chain(at, slope, slope);
}
Derivatives log(const Point& at) {
  Tensor slope = at.x.reciprocal();
  return chain(at, slope, -slope.square());
}
Derivatives log1p(const Point& at) {
  Tensor slope = (at.x + 1).reciprocal();
  return chain(at, slope, -slope.square());
}
Derivatives sin(const Point& at) { return chain(at, at.x.cos(), -at.y); }
Derivatives cos(const Point& at) { return chain(at, -at.x.sin(), -at.y); }
Derivatives tan(const Point& at) {
  Tensor slope = 1 + at.y.square();
  return chain(at, slope, 2 * at.y * slope);
}
Derivatives atan(const Point& at) {
  Tensor slope = (1 + at.x.square()).reciprocal();
  return chain(at, slope, -2 * at.x * slope.square());
}
Derivatives sinh(const Point& at) { return chain(at, at.x.cosh(), at.y); }
Derivatives cosh(const Point& at) { return chain(at, at.x.sinh(), at.y); }
Derivatives erf(const Point& at) {
  Tensor slope = (2 * std::numbers::inv_sqrtpi) * (-at.x.square()).exp();
  return chain(at, slope, -2 * at.x * slope);
}
Derivatives sqrt(const Point& at) {
  Tensor slope = 0.5 / at.y;
  return chain(at, slope, -0.5 * slope / at.x);
}
Derivatives rsqrt(const Point& at) {
  Tensor slope = -0.5 * at.y / at.x;
  return chain(at, slope, -1.5 * slope / at.x);
}
Derivatives reciprocal(const Point& at) {
  Tensor square = at.y.square();
  return chain(at, -square, 2 * square * at.y);
}
Derivatives abs(const Point& at) {
  Tensor sign = at.x.sgn();
  return straight(at, [&](const Tensor& part) { return part * sign; });
}

// Small whole exponents need no power, and where n - 2 is negative x may be zero.
Derivatives power(const Point& at, const Scalar& exponent) {
  TORCH_CHECK(!exponent.isComplex(), "not reached: complex values have no jets");
  const double n = exponent.toDouble();
  if (n == 0) return straight(at, [](const Tensor& part) { return at::zeros_like(part); });
  if (n == 1) return straight(at, [](const Tensor& part) { return part.clone(); });
  if (n == 2) {
    Tensor slope = 2 * at.x;
    Tensor bent = 2 * at.of_x.first.square();
    return {slope * at.of_x.first, at.of_x.second.defined() ? at::addcmul(bent, slope, at.of_x.second) : bent};
  }
  Tensor curve = n == 3 ? 6 * at.x : n * (n - 1) * at.x.pow(n - 2);
  return chain(at, n * at.x.pow(n - 1), curve);
}

Derivatives masked_fill(const Point& at, const Tensor& mask, const Scalar& /*filled_with*/) {
  return straight(at, [&](const Tensor& part) { return part.masked_fill(mask, 0); });
}

// Affine: what is added has no derivative.
Derivatives pad(const Point& at, c10::SymIntArrayRef sizes, const Scalar& /*filled_with*/) {
  return straight(at, [&](const Tensor& part) { return at::constant_pad_nd_symint(part, sizes, 0); });
}

}  // namespace

void add_elementwise_jets(Rules& table) {
  namespace op = at::_ops;
  table.impl("exp", rule<op::exp, exp>());
  table.impl("expm1", rule<op::expm1, expm1>());
  table.impl("log", rule<op::log, log>());
  table.impl("log1p", rule<op::log1p, log1p>());
  table.impl("sin", rule<op::sin, sin>());
  table.impl("cos", rule<op::cos, cos>());
  table.impl("tan", rule<op::tan, tan>());
  table.impl("atan", rule<op::atan, atan>());
  table.impl("sinh", rule<op::sinh, sinh>());
  table.impl("cosh", rule<op::cosh, cosh>());
  table.impl("erf", rule<op::erf, erf>());
  table.impl("sqrt", rule<op::sqrt, sqrt>());
  table.impl("rsqrt", rule<op::rsqrt, rsqrt>());
  table.impl("reciprocal", rule<op::reciprocal, reciprocal>());
  table.impl("abs", rule<op::abs, abs>());
  table.impl("pow.Tensor_Scalar", rule<op::pow_Tensor_Scalar, power>());
  table.impl("constant_pad_nd", rule<op::constant_pad_nd, pad>());
  table.impl("masked_fill.Scalar", rule<op::masked_fill_Scalar, masked_fill>());
}

}  // namespace overdrive::forward_ad::taylor
