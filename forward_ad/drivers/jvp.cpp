#include "forward_ad/drivers/driver_level.h"
#include "forward_ad/drivers/drivers.h"
#include "forward_ad/drivers/reverse.h"
#include "forward_ad/layers/dual_layout.h"
#include "forward_ad/levels/dual.h"

#include <ATen/ATen.h>

#include <utility>

namespace overdrive::forward_ad {

namespace detail {

namespace {
Tensors make_duals(const Tensors& inputs, const Tensors& tangents, uint64_t level) {
  Tensors duals;
  duals.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    // No tangent: the function is not differentiated with regard to this input.
    duals.push_back(tangents[i].defined() ? make_dual(inputs[i], tangents[i], level) : inputs[i]);
  }
  return duals;
}
}  // namespace

Jvp jvp(const Function& f, const Tensors& inputs, const Tensors& tangents) {
  TORCH_CHECK(inputs.size() == tangents.size(), "jvp: there are ", inputs.size(), " inputs but ",
              tangents.size(), " tangents.");
  check_inputs("jvp", inputs);
  const InferenceModeExit exit;
  Tensors primals = exit.usable(inputs), directions = exit.usable(tangents);
  Jvp result;
  bool bare = false;
  {
    DriverLevel level(can_be_plain_duals(primals) && can_be_plain_duals(directions));
    bare = level.is_bare();
    Output output = call("jvp", f, make_duals(primals, directions, level));
    for (const at::Tensor& value : output.values) {
      DualParts parts = level.unpack(value);
      result.output.values.push_back(std::move(parts.primal));
      result.tangents.push_back(std::move(parts.tangent));
    }
    for (const at::Tensor& aux : output.aux) {
      result.output.aux.push_back(aux.defined() ? level.unpack(aux).primal : aux);
    }
  }
  if (bare) {
    leave_no_trace(result.output.values);
    leave_no_trace(result.output.aux);
    for (at::Tensor& tangent : result.tangents) tangent = apart(tangent);
  }
  // Outside the level: what is made inside belongs to its layer.
  for (size_t i = 0; i < result.tangents.size(); ++i) {
    if (!result.tangents[i].defined()) result.tangents[i] = at::zeros_like(result.output.values[i]);
  }
  return result;
}

namespace {
// The gradients of f, with f's value as the first of the results passed through.
Function gradient_of(const Function& f) {
  return [&f](const Tensors& inputs) -> Output {
    Vjp r = vjp(f, inputs);
    TORCH_CHECK(r.output.values[0].numel() == 1,
                "hvp: the function must return one number, not a tensor of shape ", r.output.values[0].sizes(),
                ".");
    Output gradients{r.pullback({at::ones_like(r.output.values[0])}), {r.output.values[0]}};
    gradients.aux.insert(gradients.aux.end(), r.output.aux.begin(), r.output.aux.end());
    return gradients;
  };
}

}  // namespace

Hvp hvp(const Function& f, const Tensors& inputs, const Tensors& vectors, HvpMode mode) {
  TORCH_CHECK(inputs.size() == vectors.size(), "hvp: there are ", inputs.size(), " inputs but ", vectors.size(),
              " vectors.");
  check_differentiable("hvp", inputs);
  Hvp result;
  Output gradients;
  if (mode == HvpMode::kForwardOverReverse) {
    Jvp r = jvp(gradient_of(f), inputs, vectors);
    gradients = std::move(r.output);
    result.products = std::move(r.tangents);
  } else {
    // The Hessian is symmetric, so its transposed product is the product.
    Vjp r = vjp(gradient_of(f), inputs);
    gradients = std::move(r.output);
    result.products = r.pullback(vectors);
  }
  result.gradients = std::move(gradients.values);
  result.output.values = {gradients.aux[0]};
  result.output.aux.assign(gradients.aux.begin() + 1, gradients.aux.end());
  return result;
}

}  // namespace detail

at::Tensor elementwise_derivative(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x,
                                  int64_t n) {
  constexpr const char* kName = "elementwise_derivative";
  TORCH_CHECK(f != nullptr, kName, ": the function is empty.");
  TORCH_CHECK(n >= 0, kName, ": the order must not be negative, but is ", n, ".");
  detail::check_differentiable(kName, {x});
  if (n == 0) return f(x);
  auto lower = [&](const Tensors& inputs) {
    return detail::Output{{elementwise_derivative(f, inputs[0], n - 1)}, {}};
  };
  return detail::jvp(lower, {x}, {at::ones_like(x)}).tangents[0];
}

}  // namespace overdrive::forward_ad
