// The rules that stand in for LibTorch's formulas; those of more operators are looked at by
// the table of operators.
#include "test/forward_ad/forward_ad_fixture.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;

using Rules = ForwardAdTest;

Tensor derivative_of(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  return jvp(f, x, at::ones_like(x)).tangent;
}

// Products with one tangent have rules of their own (product_rules.cpp); so each is compared
// with what LibTorch's formulas give on a layer.
TEST_F(Rules, ProductsAreThoseOfTheFormulas) {
  Tensor m = random({3, 3}), batched = random({2, 3, 3}), b = random({3});
  std::vector<std::function<Tensor(const Tensor&)>> products = {
      [&](const Tensor& t) { return t.mm(m); },
      [&](const Tensor& t) { return m.mm(t); },
      [&](const Tensor& t) { return t.mm(t); },
      [&](const Tensor& t) { return t.mv(b) + m.mv(t[0]); },
      [&](const Tensor& t) {
        return batched.bmm(t.expand({2, 3, 3}));
      },
      [&](const Tensor& t) { return t.matmul(batched).matmul(t); },
      [&](const Tensor& t) { return at::linear(t, m); },
      [&](const Tensor& t) { return at::linear(t, m, b); },
      [&](const Tensor& t) { return at::linear(t, m, t[0]); },
      [&](const Tensor& t) { return at::linear(m, t, b) + at::linear(m, m, t[1]); },
      [&](const Tensor& t) { return at::linear(batched, t, b); },
      [&](const Tensor& t) { return at::addmm(b, t, m) + at::addmm(m, m, t, 0.5, 2); },
      [&](const Tensor& t) { return at::addmm(t, t, m, 0.5); },
      [&](const Tensor& t) { return at::addmm(b, m, t.t(), 3); },
      [&](const Tensor& t) { return t.t().conj().mm(m); },
  };
  Tensor x = random({3, 3}), v = random({3, 3});
  for (size_t i = 0; i < products.size(); ++i) {
    SCOPED_TRACE("product " + std::to_string(i));
    auto bare = jvp(products[i], x, v);
    Tensor twice =
        derivative_of([&](const Tensor& s) { return jvp(products[i], x + s * v, v).tangent; }, number(0));
    auto squared = [&](const Tensor& t) { return products[i](t).square().sum(); };
    Tensor product = hvp(squared, x, v).product;
    DualLevel layered;
    auto want = jvp(products[i], x, v);
    EXPECT_TRUE(close(bare.value, want.value));
    EXPECT_TRUE(close(bare.tangent, want.tangent));
    EXPECT_TRUE(close(product, hvp(squared, x, v, HvpMode::kReverseOverReverse).product, 1e-10));
    EXPECT_TRUE(close(
        twice,
        derivative_of([&](const Tensor& s) { return jvp(products[i], x + s * v, v).tangent; }, number(0))));
  }
}

// Value and tangent of few rows by a large matrix come from one product.
TEST_F(Rules, AProductByALargeMatrixIsThatOfTheFormula) {
  Tensor weight = random({512, 512}), x = random({8, 512}), v = random({8, 512});
  for (const Tensor& matrix : {weight, weight.t()}) {
    auto [value, tangent] = jvp([&](const Tensor& t) { return t.mm(matrix); }, x, v);
    EXPECT_TRUE(close(value, x.mm(matrix)));
    EXPECT_TRUE(close(tangent, v.mm(matrix)));
    EXPECT_FALSE(value.is_view());
    Tensor direction = v.clone().set_requires_grad(true);
    auto recorded = jvp([&](const Tensor& t) { return t.mm(matrix); }, x, direction);
    EXPECT_FALSE(recorded.value.requires_grad());
    EXPECT_TRUE(close(torch::autograd::grad({recorded.tangent.sum()}, {direction})[0],
                      at::ones_like(v).mm(matrix.t())));
  }
}

// A product that reverse mode records must save its factors with their tangents, also
// when a hook takes them away.
TEST_F(Rules, ReverseModeByHandSeesTheTangents) {
  Tensor x = random({3, 3}), v = random({3, 3}), w = random({3, 3});
  auto gradient = [&](const Tensor& t) {
    Tensor weight = w.clone().set_requires_grad(true);
    return torch::autograd::grad({t.mm(weight).square().sum()}, {weight})[0];
  };
  // d/dw |x w|^2 = 2 x^T x w
  EXPECT_TRUE(close(jvp(gradient, x, v).tangent, 2 * (v.t().mm(x) + x.t().mm(v)).mm(w)));
}

// A program's own backward without create_graph runs formulas that were not made to be
// differentiated.
TEST_F(Rules, ReverseModeByHandMayTakeFusedFormulas) {
  using Activation = Tensor (*)(const Tensor&);
  for (Activation activation : {Activation(at::silu), Activation(at::mish), Activation(at::hardsigmoid)}) {
    Tensor x = random({3, 3}), v = random({3, 3}), w = random({3, 3});
    auto loss = [&](const Tensor& t) { return activation(t.mm(w)).square().sum(); };
    auto gradient = [&](const Tensor& t) {
      Tensor leaf = t.view_as(t).set_requires_grad(true);
      return torch::autograd::grad({loss(leaf)}, {leaf})[0];
    };
    EXPECT_TRUE(close(jvp(gradient, x, v).tangent, hvp(loss, x, v).product, 1e-10));
  }
}

TEST_F(Rules, BatchNormKeepsItsRunningStatistics) {
  Tensor x = random({4, 2, 3}), v = random({4, 2, 3});
  auto after = [&](bool as_dual) {
    Tensor mean = at::zeros({2}, at::kDouble), variance = at::ones({2}, at::kDouble);
    auto norm = [&](const Tensor& t) {
      return at::batch_norm(t, {}, {}, mean, variance, true, 0.25, 1e-5, false);
    };
    Tensor value = as_dual ? jvp(norm, x, v).value : norm(x);
    return Tensors{value, mean, variance};
  };
  Tensors plain = after(false), dual = after(true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(close(dual[i], plain[i])) << i;
}

TEST_F(Rules, AreGoneWithTheLevel) {
  Tensor x = random({3});
  auto is_included = [] {
    return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode);
  };
  EXPECT_FALSE(is_included());
  {
    DualLevel outer;
    DualLevel inner;
    EXPECT_TRUE(is_included());
  }
  EXPECT_FALSE(is_included());
  bool inside = false;
  jvp([&](const Tensor& t) { return inside = is_included(), t * 1; }, x, x);
  EXPECT_TRUE(inside);
  EXPECT_FALSE(is_included());
}

}  // namespace
}  // namespace overdrive::forward_ad
