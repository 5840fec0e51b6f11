#include "test/forward_ad/op_table.h"

#include <ATen/ATen.h>

namespace overdrive::forward_ad::op_cases {

using at::Tensor;

std::vector<OpCase> elementwise() {
  return {
      {"sin", kFlat, [](const Tensor& x) { return x.sin(); }},
      {"cos", kFlat, [](const Tensor& x) { return x.cos(); }},
      {"tan", kFlat, [](const Tensor& x) { return x.tan(); }},
      {"asin", kFlat, [](const Tensor& x) { return x.asin(); }, -0.6, 0.6},
      {"acos", kFlat, [](const Tensor& x) { return x.acos(); }, -0.6, 0.6},
      {"atan", kFlat, [](const Tensor& x) { return x.atan(); }},
      {"sinh", kFlat, [](const Tensor& x) { return x.sinh(); }},
      {"cosh", kFlat, [](const Tensor& x) { return x.cosh(); }},
      {"tanh", kFlat, [](const Tensor& x) { return x.tanh(); }},
      {"asinh", kFlat, [](const Tensor& x) { return x.asinh(); }},
      {"acosh", kFlat, [](const Tensor& x) { return x.acosh(); }, 1.5, 2.5},
      {"atanh", kFlat, [](const Tensor& x) { return x.atanh(); }, -0.6, 0.6},
      {"exp", kFlat, [](const Tensor& x) { return x.exp(); }},
      {"expm1", kFlat, [](const Tensor& x) { return x.expm1(); }},
      {"log", kFlat, [](const Tensor& x) { return x.log(); }, 0.5, 1.5},
      {"log1p", kFlat, [](const Tensor& x) { return x.log1p(); }},
      {"log2", kFlat, [](const Tensor& x) { return x.log2(); }, 0.5, 1.5},
      {"sqrt", kFlat, [](const Tensor& x) { return x.sqrt(); }, 0.5, 1.5},
      {"rsqrt", kFlat, [](const Tensor& x) { return x.rsqrt(); }, 0.5, 1.5},
      {"reciprocal", kFlat, [](const Tensor& x) { return x.reciprocal(); }, 0.5, 1.5},
      {"pow_scalar", kFlat, [](const Tensor& x) { return x.pow(4); }},
      {"pow_tensor", kFlat, [](const Tensor& x) { return at::pow(x, x + 1); }},
      {"sigmoid", kFlat, [](const Tensor& x) { return x.sigmoid(); }},
      {"log_sigmoid", kFlat, [](const Tensor& x) { return at::log_sigmoid(x); }},
      {"softplus", kFlat, [](const Tensor& x) { return at::softplus(x); }},
      {"gelu", kFlat, [](const Tensor& x) { return at::gelu(x); }},
      {"gelu_tanh", kFlat, [](const Tensor& x) { return at::gelu(x, "tanh"); }},
      {"silu", kFlat, [](const Tensor& x) { return at::silu(x); }},
      {"mish", kFlat, [](const Tensor& x) { return at::mish(x); }},
      {"elu", kFlat, [](const Tensor& x) { return at::elu(-x); }},
      {"relu", kFlat, [](const Tensor& x) { return at::relu(x * x - 0.05); }},
      {"leaky_relu", kFlat, [](const Tensor& x) { return at::leaky_relu(x * x - 1, 0.1); }},
      {"prelu", kFlat, [](const Tensor& x) { return at::prelu(x * x - 1, x[0]); }},
      {"celu", kFlat, [](const Tensor& x) { return at::celu(-x, 0.7); }},
      {"hardtanh", kFlat, [](const Tensor& x) { return at::hardtanh(x.exp() - 2.5); }},
      {"hardswish", kFlat, [](const Tensor& x) { return at::hardswish(x * x - 1); }},
      {"hardsigmoid", kFlat, [](const Tensor& x) { return at::hardsigmoid(x.exp() - 1); }, 0.2, 0.8, 5, 1,
       "the backward operator has no derivative in reverse mode"},
      {"softshrink", kFlat, [](const Tensor& x) { return at::softshrink(x.exp(), 0.4); }},
      {"glu", kFlat, [](const Tensor& x) { return at::glu(x.exp(), 0); }},
      {"sinc", kFlat, [](const Tensor& x) { return (2 * x).sinc(); }},
      {"sinc_at_zero", kFlat, [](const Tensor& x) { return (x - 0.5).sinc(); }, 0.5, 0.5, 5, 1,
       "the second derivative in reverse mode is not a number at zero"},
      {"logit", kFlat, [](const Tensor& x) { return x.logit(); }},
      {"erf", kFlat, [](const Tensor& x) { return x.erf(); }},
      {"erfinv", kFlat, [](const Tensor& x) { return x.erfinv(); }, -0.6, 0.6},
      {"lgamma", kFlat, [](const Tensor& x) { return x.lgamma(); }, 1.5, 2.5},
      {"mul_div", kFlat, [](const Tensor& x) { return x * x.sin() / (x + 1); }},
      {"atan2", kFlat, [](const Tensor& x) { return at::atan2(x, x * x + 1); }},
      {"hypot", kFlat, [](const Tensor& x) { return at::hypot(x, x * x + 1); }},
      {"xlogy", kFlat, [](const Tensor& x) { return at::xlogy(x, x + 1); }},
      {"where", kFlat, [](const Tensor& x) { return at::where(fixed({4}) > 0, x.exp(), x.sin()); }},
      {"clamp", kFlat, [](const Tensor& x) { return x.pow(3).clamp(-1, 0.9); }},
      {"lerp", kFlat, [](const Tensor& x) { return at::lerp(x, x.exp(), x * x); }},
      {"addcmul", kFlat, [](const Tensor& x) { return at::addcmul(x, x.sin(), x.exp(), 0.5); }},
      {"addcdiv", kFlat, [](const Tensor& x) { return at::addcdiv(x, x.sin(), x.exp(), 0.5); }},
      {"abs", kFlat, [](const Tensor& x) { return (-x.pow(3)).abs(); }},
      {"maximum", kFlat, [](const Tensor& x) { return at::maximum(x.pow(3), x.exp()); }},
  };
}

}  // namespace overdrive::forward_ad::op_cases
