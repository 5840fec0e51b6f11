// Activations of networks. LibTorch's backward kernels multiply by the slope in one pass over memory.
#include "forward_ad/taylor/chain.h"

#include <cmath>
#include <numbers>
#include <string_view>

namespace overdrive::forward_ad::taylor {
namespace {
using at::Tensor;
using c10::Scalar;

// g' = 1 - y^2, g'' = -2y g'
Derivatives tanh(const Point& at) {
  return chain(at, at.y, -2, [&](const Tensor& part) { return at::tanh_backward(part, at.y); });
}

// g' = y(1 - y), g'' = (1 - 2y) g'
Derivatives sigmoid(const Point& at) {
  return chain(at, 1 - 2 * at.y, 1, [&](const Tensor& part) { return at::sigmoid_backward(part, at.y); });
}

// g' = sigmoid(beta x), and 1 where the value is taken from x. g'' = beta (1 - g') g'.
Derivatives softplus(const Point& at, const Scalar& beta, const Scalar& threshold) {
  Tensor scaled = at.x * beta, slope = scaled.sigmoid().masked_fill(scaled > threshold, 1);
  return chain(at, slope, beta * (slope * (1 - slope)));
}

// With s = sigmoid(x): g' = s + xs(1 - s), g'' = s(1 - s)(2 + x(1 - 2s)).
Derivatives silu(const Point& at) {
  Tensor s = at.x.sigmoid(), bend = s * (1 - s);
  return chain(at, at::addcmul(s, at.x, bend), bend * (2 + at.x * (1 - 2 * s)));
}

// x P(x) with the normal distribution P and its density p: g' = P + xp, g'' = (2 - x^2) p.
Derivatives exact_gelu(const Point& at) {
  Tensor square = at.x.square();
  Tensor density = (square * -0.5).exp() * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
  Tensor distribution = 0.5 * (1 + (at.x * (0.5 * std::numbers::sqrt2)).erf());
  return chain(at, at::addcmul(distribution, at.x, density), (2 - square) * density);
}

// x (1 + t) / 2 with t = tanh(u), u = k (x + 0.044715 x^3).
Derivatives gelu_by_tanh(const Point& at) {
  constexpr double kScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCube = 0.044715;
  Tensor square = at.x.square();
  Tensor t = (kScale * at.x * (1 + kCube * square)).tanh();
  Tensor slope_of_u = kScale * (1 + 3 * kCube * square);
  Tensor rest = 1 - t.square(), slope_of_t = rest * slope_of_u;
  Tensor curve_of_t = rest * (6 * kScale * kCube * at.x) - 2 * t * slope_of_t * slope_of_u;
  return chain(at, 0.5 * (1 + t + at.x * slope_of_t), slope_of_t + 0.5 * at.x * curve_of_t);
}

Derivatives gelu(const Point& at, std::string_view approximate) {
  return approximate == "tanh" ? gelu_by_tanh(at) : exact_gelu(at);
}

Derivatives relu(const Point& at) {
  return straight(at, [&](const Tensor& part) { return at::threshold_backward(part, at.y, 0); });
}

Derivatives leaky_relu(const Point& at, const Scalar& negative_slope) {
  return straight(at, [&](const Tensor& part) {
    return at::leaky_relu_backward(part, at.x, negative_slope, /*self_is_result=*/false);
  });
}

}  // namespace

void add_activation_jets(Rules& table) {
  namespace op = at::_ops;
  table.impl("tanh", rule<op::tanh, tanh>());
  table.impl("sigmoid", rule<op::sigmoid, sigmoid>());
  table.impl("softplus", rule<op::softplus, softplus>());
  table.impl("silu", rule<op::silu, silu>());
  table.impl("gelu", rule<op::gelu, gelu>());
  table.impl("relu", rule<op::relu, relu>());
  table.impl("leaky_relu", rule<op::leaky_relu, leaky_relu>());
}

}  // namespace overdrive::forward_ad::taylor
