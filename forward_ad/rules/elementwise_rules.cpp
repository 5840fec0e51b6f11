// Value and tangent of the elementwise operators on which forward over reverse mode spends most of its passes
// over memory. They take one pass over contiguous tensors, and otherwise fewer passes than LibTorch's formulas,
// because sums are made in place. A recording sees operators alone: there the formula of the pass runs on
// tensors, an operator for each operation, which rounds the same.
#include "engine/operators/keys.h"
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/rule_support.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

// Two tensors of real numbers with tangents, all of one shape, that nothing records.
struct Pair {
  Tensor a, b, of_a, of_b;

  static std::optional<Pair> of(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
    if (!can_use_plain_rule(keys, a, b) || a.scalar_type() != b.scalar_type() || !a.is_floating_point())
      return {};
    Pair pair{a, b, a._fw_grad(0), b._fw_grad(0)};
    auto fits = [&](const Tensor& tangent) { return is_plain(tangent) && tangent.sizes() == a.sizes(); };
    if (a.sizes() != b.sizes() || !fits(pair.of_a) || !fits(pair.of_b)) return {};
    return pair;
  }

  // Whether one loop may take all four tensors. LibTorch's own loops use its threads, ours do not.
  bool suits_one_pass() const {
    auto fits = [&](const Tensor& tensor) {
      return tensor.device().is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == a.scalar_type() &&
             !is_recorded(tensor);
    };
    return (a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble) && fits(a) && fits(b) &&
           fits(of_a) && fits(of_b) && (a.numel() <= at::internal::GRAIN_SIZE || at::get_num_threads() == 1);
  }

  bool is_side_by_side() const { return lies_beside_its_tangent(a) || lies_beside_its_tangent(b); }
  // Memory for the result and its tangent.
  Halves result() const {
    if (is_side_by_side()) return Halves::empty(a.sizes(), a.scalar_type());
    auto empty = [this] { return Tensor(at::detail::empty_cpu(a.sizes(), a.scalar_type())); };
    return {empty(), empty()};
  }
};

// The value, and its tangent.
template <typename T>
struct Dual {
  T value, tangent;
};

template <typename T, typename Formula>
void fill(const Halves& result, const Pair& pair, Formula formula) {
  T* __restrict value = result.first.mutable_data_ptr<T>();
  T* __restrict tangent = result.second.mutable_data_ptr<T>();
  const T *a = pair.a.const_data_ptr<T>(), *b = pair.b.const_data_ptr<T>();
  const T *of_a = pair.of_a.const_data_ptr<T>(), *of_b = pair.of_b.const_data_ptr<T>();
  for (int64_t i = 0, count = pair.a.numel(); i < count; ++i) {
    Dual<T> made = formula(Dual<T>{a[i], of_a[i]}, Dual<T>{b[i], of_b[i]});
    value[i] = made.value;
    tangent[i] = made.tangent;
  }
}

// Value and tangent in one pass over the memory.
template <typename Formula>
Tensor in_one_pass(DispatchKeySet keys, const Pair& pair, Formula formula) {
  if (engine::keys::is_recording(keys) && !pair.is_side_by_side()) {
    c10::AutoFwGradMode no_tangents(false);
    const Dual<Tensor> made = formula(Dual<Tensor>{pair.a, pair.of_a}, Dual<Tensor>{pair.b, pair.of_b});
    return with_tangent(made.value, made.tangent);
  }
  Halves result = pair.result();
  if (pair.a.scalar_type() == at::kFloat) {
    fill<float>(result, pair, formula);
  } else {
    fill<double>(result, pair, formula);
  }
  return with_tangent(result.first, result.second);
}

Tensor mul(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  auto pair = Pair::of(keys, a, b);
  if (!pair) return at::_ops::mul_Tensor::redispatch(keys & kBelow, a, b);
  if (pair->suits_one_pass()) {
    return in_one_pass(keys, *pair, [](auto x, auto y) -> decltype(x) {
      return {x.value * y.value, x.tangent * y.value + x.value * y.tangent};
    });
  }
  Tensor value = value_of<at::_ops::mul_Tensor>(keys, a, b);
  c10::AutoFwGradMode no_tangents(false);
  return with_tangent(value, at::mul(pair->of_a, b).addcmul_(a, pair->of_b));
}

Tensor tanh_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& output) {
  auto pair = Pair::of(keys, grad, output);
  if (!pair) return at::_ops::tanh_backward::redispatch(keys & kBelow, grad, output);
  if (pair->suits_one_pass()) {
    return in_one_pass(keys, *pair, [](auto g, auto y) -> decltype(g) {
      auto slope = 1 - y.value * y.value;
      return {g.value * slope, g.tangent * slope - 2 * g.value * y.value * y.tangent};
    });
  }
  Tensor value = value_of<at::_ops::tanh_backward>(keys, grad, output);
  c10::AutoFwGradMode no_tangents(false);
  return with_tangent(value,
                      at::tanh_backward(pair->of_a, output).addcmul_(at::mul(grad, output), pair->of_b, -2));
}

Tensor sigmoid_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& output) {
  auto pair = Pair::of(keys, grad, output);
  if (!pair) return at::_ops::sigmoid_backward::redispatch(keys & kBelow, grad, output);
  if (pair->suits_one_pass()) {
    return in_one_pass(keys, *pair, [](auto g, auto y) -> decltype(g) {
      auto rest = 1 - y.value;
      return {g.value * rest * y.value, g.tangent * rest * y.value + g.value * (rest - y.value) * y.tangent};
    });
  }
  Tensor value = value_of<at::_ops::sigmoid_backward>(keys, grad, output);
  c10::AutoFwGradMode no_tangents(false);
  Tensor bent = at::mul(grad, pair->of_b);
  return with_tangent(value, at::sigmoid_backward(pair->of_a, output).add_(bent).addcmul_(bent, output, -2));
}

// x and x^2; the backward of x^2 calls the power 1.
Tensor power(DispatchKeySet keys, const Tensor& x, const c10::Scalar& exponent) {
  const bool is_square = exponent.equal(2), has_rule = is_square || exponent.equal(1);
  auto pair = has_rule && !exponent.isComplex() ? Pair::of(keys, x, x) : std::nullopt;
  if (!pair) return at::_ops::pow_Tensor_Scalar::redispatch(keys & kBelow, x, exponent);
  if (is_square && pair->suits_one_pass()) {
    return in_one_pass(keys, *pair, [](auto v, auto) -> decltype(v) {
      return {v.value * v.value, 2 * v.value * v.tangent};
    });
  }
  Tensor value = value_of<at::_ops::pow_Tensor_Scalar>(keys, x, exponent);
  c10::AutoFwGradMode no_tangents(false);
  return with_tangent(value, is_square ? at::mul(x, pair->of_a).mul_(2) : pair->of_a.clone());
}

// The modules of batch norm count their batches so. A layer refuses to write to a count from outside of it; a
// number added to a tensor without a derivative gives it none.
Tensor& count_up(DispatchKeySet keys, Tensor& self, const c10::Scalar& other, const c10::Scalar& alpha) {
  const bool is_from_outside = is_plain(self) && !self.requires_grad() && !has_tangent(self);
  if (!is_from_outside || !keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) {
    return at::_ops::add__Scalar::redispatch(keys & kBelow, self, other, alpha);
  }
  BelowLayer below_all(0);
  return at::_ops::add__Scalar::call(self, other, alpha);
}

}  // namespace

void add_elementwise_rules(torch::Library& table) {
  table.impl("add_.Scalar", TORCH_FN(count_up));
  table.impl("mul.Tensor", TORCH_FN(mul));
  table.impl("tanh_backward", TORCH_FN(tanh_backward));
  table.impl("sigmoid_backward", TORCH_FN(sigmoid_backward));
  table.impl("pow.Tensor_Scalar", TORCH_FN(power));
}

}  // namespace overdrive::forward_ad::rules
