// Layer norm and batch norm.
//
// The faults: the forward formulas use the mean and the deviation that the operator returns as constants, so
// the first derivative is right and derivatives of it are wrong. The backward operators have no forward formula
// at all. The repairs compute mean and deviation anew, by operators that have formulas. Half precision stays at
// the ends, as in LibTorch's kernels.
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <tuple>
#include <vector>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;
using Dims = std::vector<int64_t>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using MaybeTensor = std::optional<Tensor>;

Tensor full(const Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// The parts of (x - mean) / deviation, with the dimensions that were averaged over.
struct Normalized {
  Tensor mean, rstd, values;

  static Normalized with(const Tensor& input, const Tensor& mean, const Tensor& rstd) {
    return {mean, rstd, (input - mean) * rstd};
  }
  static Normalized with_eps(const Tensor& input, const Dims& dims, double eps) {
    auto [variance, mean] = at::var_mean(input, dims, /*correction=*/c10::Scalar(0), /*keepdim=*/true);
    return with(input, mean, at::rsqrt(variance + eps));
  }
  // From the deviation that the operator returned, made anew so that it depends on the input.
  static Normalized with_rstd(const Tensor& input, const Dims& dims, const Tensor& rstd) {
    auto [variance, mean] = at::var_mean(input, dims, /*correction=*/c10::Scalar(0), /*keepdim=*/true);
    Tensor eps = (rstd.reshape(mean.sizes()).pow(-2) - variance).detach();
    return with(input, mean, at::rsqrt(variance + eps));
  }

  // The gradient of the input for that of the values.
  Tensor pull_back(const Tensor& grad, const Dims& dims) const {
    return rstd * (grad - grad.mean(dims, true) - values * (grad * values).mean(dims, true));
  }
};

Dims range(int64_t begin, int64_t end) {
  Dims dims;
  for (int64_t dim = begin; dim < end; ++dim) dims.push_back(dim);
  return dims;
}

Three layer_norm(DispatchKeySet keys, const Tensor& input, c10::SymIntArrayRef shape, const MaybeTensor& weight,
                 const MaybeTensor& bias, double eps) {
  if (!any_tangent(input, weight, bias)) {
    return at::_ops::native_layer_norm::redispatch(keys & kBelow, input, shape, weight, bias, eps);
  }
  Dims dims = range(input.dim() - static_cast<int64_t>(shape.size()), input.dim());
  auto normalized = Normalized::with_eps(full(input), dims, eps);
  Tensor output = is_given(weight) ? normalized.values * full(*weight) : normalized.values;
  if (is_given(bias)) output = output + full(*bias);
  return {output.to(input.scalar_type()), normalized.mean, normalized.rstd};
}

Three layer_norm_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& input,
                          c10::SymIntArrayRef shape, const Tensor& mean, const Tensor& rstd,
                          const MaybeTensor& weight, const MaybeTensor& bias, std::array<bool, 3> wanted) {
  if (!any_tangent(grad, input, weight)) {
    return at::_ops::native_layer_norm_backward::redispatch(keys & kBelow, grad, input, shape, mean, rstd,
                                                            weight, bias, wanted);
  }
  const int64_t first = input.dim() - static_cast<int64_t>(shape.size());
  const Dims inner = range(first, input.dim()), outer = range(0, first);
  auto normalized = Normalized::with_rstd(full(input), inner, full(rstd));
  auto summed = [&](const Tensor& of_all) { return outer.empty() ? of_all.clone() : of_all.sum(outer); };
  const Tensor of_output = full(grad);
  Tensor of_values = is_given(weight) ? of_output * full(*weight) : of_output;
  Three result;
  if (wanted[0]) std::get<0>(result) = normalized.pull_back(of_values, inner).to(input.scalar_type());
  if (wanted[1] && is_given(weight))
    std::get<1>(result) = summed(of_output * normalized.values).to(weight->scalar_type());
  if (wanted[2] && is_given(bias)) std::get<2>(result) = summed(of_output).to(bias->scalar_type());
  return result;
}

// Along the channels, dimension 1, of what has dimensions like `input`.
Tensor along_channels(const Tensor& of_channels, const Tensor& input) {
  Dims shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = of_channels.numel();
  return full(of_channels).reshape(shape);
}

Dims all_but_channels(const Tensor& input) {
  Dims dims = range(2, input.dim());
  dims.push_back(0);
  return dims;
}

bool is_wrapped(const MaybeTensor& tensor) {
  return is_given(tensor) && at::functorch::maybeGetTensorWrapper(*tensor) != nullptr;
}

// LibTorch's kernel keeps the running statistics; they have no derivative. Below all layers, because a layer
// wraps tensors from outside of it and refuses to write to them.
void update_running(DispatchKeySet keys, const Tensor& input, const MaybeTensor& running_mean,
                    const MaybeTensor& running_var, double momentum, double eps) {
  if (!is_given(running_mean) && !is_given(running_var)) return;
  c10::NoGradGuard no_grad;
  c10::AutoFwGradMode no_tangents(false);
  if (is_batched(input)) {  // many at once have no one mean: LibTorch says so
    at::_ops::native_batch_norm::redispatch(keys & kBelow, input, {}, {}, running_mean, running_var, true,
                                            momentum, eps);
    return;
  }
  BelowLayer below_all(0);
  auto plain = [](const MaybeTensor& tensor) { return is_given(tensor) ? innermost_of(*tensor) : Tensor(); };
  at::_ops::native_batch_norm::call(plain(input), {}, {}, plain(running_mean), plain(running_var), true,
                                    momentum, eps);
}

Three batch_norm(DispatchKeySet keys, const Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                 const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training,
                 double momentum, double eps) {
  const bool has_tangent = any_tangent(input, weight, bias);
  if (!training || !(has_tangent || is_wrapped(input) || is_wrapped(weight) || is_wrapped(bias))) {
    return at::_ops::native_batch_norm::redispatch(keys & kBelow, input, weight, bias, running_mean,
                                                   running_var, training, momentum, eps);
  }
  update_running(keys, input, running_mean, running_var, momentum, eps);
  if (!has_tangent) {
    return at::_ops::native_batch_norm::redispatch(keys & kBelow, input, weight, bias, {}, {}, training,
                                                   momentum, eps);
  }
  auto normalized = Normalized::with_eps(full(input), all_but_channels(input), eps);
  Tensor output = normalized.values;
  if (is_given(weight)) output = output * along_channels(*weight, input);
  if (is_given(bias)) output = output + along_channels(*bias, input);
  return {output.to(input.scalar_type()), normalized.mean.flatten(), normalized.rstd.flatten()};
}

Three batch_norm_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& input,
                          const MaybeTensor& weight, const MaybeTensor& running_mean,
                          const MaybeTensor& running_var, const MaybeTensor& mean, const MaybeTensor& rstd,
                          bool training, double eps, std::array<bool, 3> wanted) {
  if (!any_tangent(grad, input, weight)) {
    return at::_ops::native_batch_norm_backward::redispatch(keys & kBelow, grad, input, weight, running_mean,
                                                            running_var, mean, rstd, training, eps, wanted);
  }
  const Dims dims = all_but_channels(input);
  auto normalized = training ? Normalized::with_rstd(full(input), dims, full(*rstd))
                             : Normalized::with(full(input), along_channels(*running_mean, input),
                                                along_channels((full(*running_var) + eps).rsqrt(), input));
  const Tensor of_output = full(grad);
  Tensor of_values = is_given(weight) ? of_output * along_channels(*weight, input) : of_output;
  const at::ScalarType of_weights = is_given(weight) ? weight->scalar_type() : input.scalar_type();
  Three result;
  if (wanted[0]) {
    Tensor of_input = training ? normalized.pull_back(of_values, dims) : of_values * normalized.rstd;
    std::get<0>(result) = of_input.to(input.scalar_type());
  }
  if (wanted[1] && is_given(weight))
    std::get<1>(result) = (of_output * normalized.values).sum(dims).to(of_weights);
  if (wanted[2]) std::get<2>(result) = of_output.sum(dims).to(of_weights);
  return result;
}

void add_layer_norm(torch::Library& table) {
  table.impl("native_layer_norm", TORCH_FN(layer_norm));
  table.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
}

void add_batch_norm(torch::Library& table) {
  table.impl("native_batch_norm", TORCH_FN(batch_norm));
  table.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
}

// Forward over reverse mode, too: the backward operators are repaired as well.
std::vector<Tensor> all_orders(const Formula& f) {
  const Tensor x = row(1, {3, 3}).square();
  std::vector<Tensor> numbers = second_order(f, x);
  const Tensor dual = at::_make_dual(x.detach().requires_grad_(), row(-1, {3, 3}), 0), y = f(dual);
  numbers.push_back(torch::autograd::grad({(y * row(1, {3, 3})).sum()}, {dual}).at(0)._fw_grad(0));
  return numbers;
}

}  // namespace

void list_norm_repairs(std::vector<Repair>& list) {
  list.push_back({"second derivatives of layer norm", add_layer_norm,
                  [] { return all_orders([](const Tensor& x) { return at::layer_norm(x, {3}); }); }});
  list.push_back({"second derivatives of batch norm", add_batch_norm, [] {
                    return all_orders([](const Tensor& x) {
                      return at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
                    });
                  }});
}

}  // namespace overdrive::forward_ad::rules
