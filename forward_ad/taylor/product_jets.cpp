// Sums and products of two tensors, either or both with derivatives: (ab)'' = a''b + 2a'b' + ab''.
#include "forward_ad/taylor/jet.h"

#include <ATen/ATen.h>

#include <utility>

namespace overdrive::forward_ad::taylor {
namespace {
using at::Tensor;
using c10::Scalar;

// An undefined tensor is zero.
Tensor sum(const Tensor& a, const Tensor& b, const Scalar& factor = 1) {
  if (!b.defined()) return a;
  if (!a.defined()) return factor.equal(1) ? b : b * factor;
  return at::add(a, b, factor);
}

// A derivative of a sum has the shape and the type of the sum.
Tensor like(const Tensor& part, const Tensor& value) {
  return part.defined() ? part.to(value.scalar_type()).expand_as(value) : part;
}

Derivatives copy_of(const Derivatives* known) { return known != nullptr ? *known : Derivatives(); }

// Two operands with their derivatives, or nothing to do.
struct Operands {
  Tensor a, b;
  const Derivatives *of_a = derivatives_of(a), *of_b = derivatives_of(b);
};

template <typename Times>
Derivatives of_product(const Tensor& a, const Derivatives& da, const Tensor& b, const Derivatives& db,
                       Times times) {
  auto product = [&](const Tensor& x, const Tensor& y) {
    return x.defined() && y.defined() ? times(x, y) : Tensor();
  };
  Derivatives made;
  made.first = sum(product(da.first, b), product(a, db.first));
  made.second =
      sum(sum(product(da.second, b), product(a, db.second)), product(da.first, db.first), /*factor=*/2);
  return made;
}

template <typename Op>
Tensor product(const Tensor& a, const Tensor& b) {
  const Operands operands{a, b};
  const Derivatives da = copy_of(operands.of_a), db = copy_of(operands.of_b);
  const InsideRule inside;
  Tensor value = Op::call(a, b);
  return with_derivatives(
      value, of_product(a, da, b, db, [](const Tensor& x, const Tensor& y) { return Op::call(x, y); }));
}

// beta * added + alpha * a b
template <typename Op, typename Product>
Tensor added_product(const Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
                     const Scalar& alpha) {
  const Operands operands{a, b};
  const Derivatives* known = derivatives_of(added);
  const Derivatives da = copy_of(operands.of_a), db = copy_of(operands.of_b), dc = copy_of(known);
  const InsideRule inside;
  Tensor value = Op::call(added, a, b, beta, alpha);
  Derivatives made = of_product(a, da, b, db, [&](const Tensor& x, const Tensor& y) {
    Tensor product = Product::call(x, y);
    return alpha.equal(1) ? product : product * alpha;
  });
  return with_derivatives(
      value, {like(sum(made.first, dc.first, beta), value), like(sum(made.second, dc.second, beta), value)});
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const Operands operands{input, weight};
  const Derivatives* known = bias.has_value() ? derivatives_of(*bias) : nullptr;
  const Derivatives da = copy_of(operands.of_a), db = copy_of(operands.of_b), dc = copy_of(known);
  const InsideRule inside;
  Tensor value = at::_ops::linear::call(input, weight, bias);
  Derivatives made =
      of_product(input, da, weight, db, [](const Tensor& x, const Tensor& y) { return at::linear(x, y); });
  return with_derivatives(value,
                          {like(sum(made.first, dc.first), value), like(sum(made.second, dc.second), value)});
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                   bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const Operands operands{input, weight};
  const Derivatives* known = bias.has_value() ? derivatives_of(*bias) : nullptr;
  if (operands.of_b != nullptr || known != nullptr) give_up("the weight of a convolution has derivatives");
  const Derivatives dx = copy_of(operands.of_a);
  auto convolved = [&](const Tensor& x) {
    return x.defined() ? at::_ops::convolution::call(x, weight, {}, stride, padding, dilation, transposed,
                                                     output_padding, groups)
                       : Tensor();
  };
  auto value = [&] {
    return at::_ops::convolution::call(input, weight, bias, stride, padding, dilation, transposed,
                                       output_padding, groups);
  };
  const InsideRule inside;
  return with_derivatives(value(), {convolved(dx.first), convolved(dx.second)});
}

// a * of_a + b * of_b, where `value` makes the value.
template <typename Value>
Tensor weighted_sum(const Operands& operands, const Scalar& of_a, const Scalar& of_b, Value value) {
  const Derivatives da = copy_of(operands.of_a), db = copy_of(operands.of_b);
  const InsideRule inside;
  const Tensor made = value();
  auto part = [&](const Tensor& x, const Tensor& y) {
    return like(sum(of_a.equal(1) || !x.defined() ? x : x * of_a, y, of_b), made);
  };
  return with_derivatives(made, {part(da.first, db.first), part(da.second, db.second)});
}

Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return weighted_sum({a, b}, 1, alpha, [&] { return at::_ops::add_Tensor::call(a, b, alpha); });
}
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return weighted_sum({a, b}, 1, -alpha, [&] { return at::_ops::sub_Tensor::call(a, b, alpha); });
}
Tensor rsub(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return weighted_sum({a, b}, -alpha, 1, [&] { return at::_ops::rsub_Tensor::call(a, b, alpha); });
}
template <typename Op>
Tensor add_number(const Tensor& a, const Scalar& b, const Scalar& alpha) {
  return weighted_sum({a, Tensor()}, 1, 1, [&] { return Op::call(a, b, alpha); });
}
Tensor rsub_number(const Tensor& a, const Scalar& b, const Scalar& alpha) {
  return weighted_sum({a, Tensor()}, -alpha, 1, [&] { return at::_ops::rsub_Scalar::call(a, b, alpha); });
}

// From a = yb: y' = (a' - yb') / b, y'' = (a'' - 2y'b' - yb'') / b.
template <typename Value>
Tensor quotient(const Operands& operands, Value value) {
  const Derivatives da = copy_of(operands.of_a), db = copy_of(operands.of_b);
  const Tensor& b = operands.b;
  const InsideRule inside;
  const Tensor y = value();
  auto over_b = [&](const Tensor& rest) { return rest.defined() ? like(rest / b, y) : rest; };
  auto times = [](const Tensor& x, const Tensor& z) { return z.defined() ? x * z : z; };
  Tensor first = over_b(sum(da.first, times(y, db.first), -1));
  Tensor rest = sum(da.second, times(first, db.first), -2);
  return with_derivatives(y, {first, over_b(sum(rest, times(y, db.second), -1))});
}

Tensor div(const Tensor& a, const Tensor& b) {
  return quotient({a, b}, [&] { return at::_ops::div_Tensor::call(a, b); });
}

// `2 - x` and `2 / x` write into a new tensor. Derivatives of others would have to reach every view.
void check_is_new(const Tensor& self, const Tensor& other) {
  if (derivatives_of(self) == nullptr && derivatives_of(other) == nullptr) return;
  if (derivatives_of(self) != nullptr || self.is_view() || !self.has_storage() ||
      self.storage().use_count() > 1)
    give_up("an operator writes in place into a tensor that has derivatives or shares memory");
}

Tensor& sub_in_place(Tensor& self, const Tensor& other, const Scalar& alpha) {
  check_is_new(self, other);
  weighted_sum({self, other}, 1, -alpha, [&] { return at::_ops::sub__Tensor::call(self, other, alpha); });
  return self;
}
Tensor& add_in_place(Tensor& self, const Tensor& other, const Scalar& alpha) {
  check_is_new(self, other);
  weighted_sum({self, other}, 1, alpha, [&] { return at::_ops::add__Tensor::call(self, other, alpha); });
  return self;
}
Tensor& div_in_place(Tensor& self, const Tensor& other) {
  check_is_new(self, other);
  quotient({self, other}, [&] { return at::_ops::div__Tensor::call(self, other); });
  return self;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Operands operands{a, b};
  const Derivatives da = copy_of(operands.of_a), db = copy_of(operands.of_b);
  const InsideRule inside;
  Tensor value = at::_ops::where_self::call(condition, a, b);
  auto part = [&](const Tensor& x, const Tensor& y) {
    if (!x.defined() && !y.defined()) return Tensor();
    return like(at::where(condition, x.defined() ? x : at::zeros_like(a), y.defined() ? y : at::zeros_like(b)),
                value);
  };
  return with_derivatives(value, {part(da.first, db.first), part(da.second, db.second)});
}

}  // namespace

void add_product_jets(Rules& table) {
  table.impl("mul.Tensor", TORCH_FN(product<at::_ops::mul_Tensor>));
  table.impl("mm", TORCH_FN(product<at::_ops::mm>));
  table.impl("bmm", TORCH_FN(product<at::_ops::bmm>));
  table.impl("mv", TORCH_FN(product<at::_ops::mv>));
  table.impl("dot", TORCH_FN(product<at::_ops::dot>));
  table.impl("matmul", TORCH_FN(product<at::_ops::matmul>));
  table.impl("addmm", TORCH_FN((added_product<at::_ops::addmm, at::_ops::mm>)));
  table.impl("addmv", TORCH_FN((added_product<at::_ops::addmv, at::_ops::mv>)));
  table.impl("baddbmm", TORCH_FN((added_product<at::_ops::baddbmm, at::_ops::bmm>)));
  table.impl("linear", TORCH_FN(linear));
  table.impl("convolution", TORCH_FN(convolution));
  table.impl("add.Tensor", TORCH_FN(add));
  table.impl("add.Scalar", TORCH_FN(add_number<at::_ops::add_Scalar>));
  table.impl("sub.Tensor", TORCH_FN(sub));
  table.impl("sub.Scalar", TORCH_FN(add_number<at::_ops::sub_Scalar>));
  table.impl("rsub.Tensor", TORCH_FN(rsub));
  table.impl("rsub.Scalar", TORCH_FN(rsub_number));
  table.impl("div.Tensor", TORCH_FN(div));
  table.impl("add_.Tensor", TORCH_FN(add_in_place));
  table.impl("sub_.Tensor", TORCH_FN(sub_in_place));
  table.impl("div_.Tensor", TORCH_FN(div_in_place));
  table.impl("where.self", TORCH_FN(where));
}

}  // namespace overdrive::forward_ad::taylor
