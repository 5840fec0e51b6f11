// The rules that stand in for LibTorch's formulas; those of more operators are looked at by
// the table of operators.
#include "test/forward_ad/forward_ad_fixture.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/modules/batchnorm.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;

using Rules = ForwardAdTest;
using Function = std::function<Tensor(const Tensor&)>;

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

// The reverse layer inside refuses to write to tensors from outside of it.
TEST_F(Rules, BatchNormKeepsItsRunningStatisticsUnderReverseMode) {
  Tensor x = random({4, 2, 3}), v = random({4, 2, 3}), weight = random({2}), bias = random({2});
  Tensor mean, variance;
  auto loss_of = [&](bool runs, bool weights_alone) {
    return [&, runs, weights_alone](const Tensor& t) {
      Tensor used = weights_alone ? t.sum(at::IntArrayRef{0, 2}) : weight;
      return at::batch_norm(weights_alone ? x : t.exp(), used, bias, runs ? mean : Tensor(),
                            runs ? variance : Tensor(), true, 0.25, 1e-2, false)
          .sin()
          .sum();
    };
  };
  for (bool weights_alone : {false, true}) {
    mean = at::zeros({2}, at::kDouble);
    variance = at::ones({2}, at::kDouble);
    loss_of(true, weights_alone)(x);
    Tensor want_mean = mean, want_variance = variance;
    mean = at::zeros({2}, at::kDouble);
    variance = at::ones({2}, at::kDouble);
    auto with = hvp(loss_of(true, weights_alone), x, v);
    auto without = hvp(loss_of(false, weights_alone), x, v);
    EXPECT_TRUE(close(with.product, without.product, 1e-12));
    EXPECT_GT(with.product.abs().max().item<double>(), 1e-3);
    EXPECT_TRUE(close(mean, want_mean)) << "once";
    EXPECT_TRUE(close(variance, want_variance));
    EXPECT_FALSE(mean.requires_grad());
    EXPECT_NE(mean.data_ptr(), nullptr) << "no wrapper";
  }
  // Levels with layers, one in the other.
  auto slope = [&](const Tensor& t) { return jvp(loss_of(true, false), t, v).tangent; };
  auto slope_without = [&](const Tensor& t) { return jvp(loss_of(false, false), t, v).tangent; };
  EXPECT_TRUE(close(jvp(slope, x, v).tangent, jvp(slope_without, x, v).tangent, 1e-10));
}

TEST_F(Rules, AModuleOfBatchNormCountsItsBatches) {
  torch::nn::BatchNorm1d norm(2);
  norm->to(at::kDouble);  // the count, too
  Tensor x = random({4, 2}), v = random({4, 2});
  auto loss = [&](const Tensor& t) { return norm(t.exp()).sin().sum(); };
  Tensor product = hvp(loss, x, v).product;
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  norm->num_batches_tracked = norm->num_batches_tracked.to(at::kLong);
  hvp(loss, x, v);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 2);
  auto by_definition = [&](const Tensor& t) {
    return at::batch_norm(t.exp(), norm->weight, norm->bias, {}, {}, true, 0.1, 1e-5, false).sin().sum();
  };
  EXPECT_TRUE(close(product, hvp(by_definition, x, v).product, 1e-12));
}

TEST_F(Rules, AttentionWithDropoutIsDifferentiatedWithItsMask) {
  Tensor x = random({1, 4, 3, 2}), v = random({1, 4, 3, 2});
  for (bool grouped : {false, true}) {
    auto attention = [&](const Tensor& t) {
      torch::manual_seed(11);
      Tensor keys = grouped ? t.narrow(1, 0, 2) : t;
      return at::scaled_dot_product_attention(t.sin(), keys.exp(), keys, {}, 0.5, true, {}, grouped);
    };
    auto number = [&](const Tensor& t) { return attention(t).square().sum(); };
    constexpr double kStep = 1e-5;
    Tensor slope = (attention(x + kStep * v) - attention(x - kStep * v)) / (2 * kStep);
    EXPECT_TRUE(close(jvp(attention, x, v).tangent, slope, 1e-6));
    EXPECT_TRUE(
        close(hvp(number, x, v).product, hvp(number, x, v, HvpMode::kReverseOverReverse).product, 1e-10));
    DualLevel layered;
    EXPECT_TRUE(close(jvp(attention, x, v).tangent, slope, 1e-6));
  }
}

// The fused operator itself has none, which is LibTorch's limit.
TEST_F(Rules, FusedAttentionWithDropoutSaysWhatToCall) {
  Tensor x = random({1, 2, 3, 2});
  auto fused = [](const Tensor& t) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(t, t, t, /*dropout_p=*/0.5));
  };
  std::string what = error_of([&] { jvp(fused, x, x); });
  EXPECT_THAT(what, testing::HasSubstr("_scaled_dot_product_flash_attention_for_cpu has no dropout"));
  EXPECT_THAT(what, testing::HasSubstr("scaled_dot_product_attention() takes other operators then"));
}

// LibTorch's formulas read the operand's tangent after that of the tensor has been written.
TEST_F(Rules, AnOperatorInPlaceWithItselfIsThatWithACopy) {
  Tensor x = random({3, 3}).abs() + 0.5, v = random({3, 3});
  using Written = std::function<void(Tensor&, const Tensor&)>;
  const Written operators[] = {
      [](Tensor& y, const Tensor& z) { y.mul_(z); },
      [](Tensor& y, const Tensor& z) { y.div_(z); },
      [](Tensor& y, const Tensor& z) { y.pow_(z); },
      [](Tensor& y, const Tensor& z) { y.xlogy_(z); },
      [](Tensor& y, const Tensor& z) { y.atan2_(z); },
      [](Tensor& y, const Tensor& z) { y.hypot_(z); },
      [](Tensor& y, const Tensor& z) { y.addcmul_(z, z, 3); },
      [](Tensor& y, const Tensor& z) { y.addcdiv_(z * 2, z); },
      [](Tensor& y, const Tensor& z) { y.lerp_(z * 2, z); },
      [](Tensor& y, const Tensor& z) { y.lerp_(z, z * 2); },
      [](Tensor& y, const Tensor& z) { y.add_(z, 2); },
      [](Tensor& y, const Tensor& z) { y.sub_(z, 2); },
      [](Tensor& y, const Tensor& z) { y.lerp_(z, 0.25); },
      [](Tensor& y, const Tensor& z) { y.copysign_(z); },
  };
  for (size_t i = 0; i < std::size(operators); ++i) {
    SCOPED_TRACE("operator " + std::to_string(i));
    auto call = [&](bool copy, bool part) {
      return [&, copy, part](const Tensor& t) {
        Tensor y = t * 1, written = part ? y[0] : y;
        operators[i](written, copy ? written.clone() : written);
        return y * t;
      };
    };
    for (bool part : {false, true}) {
      Function itself = call(false, part), a_copy = call(true, part);
      EXPECT_TRUE(close(jvp(itself, x, v).tangent, jvp(a_copy, x, v).tangent));
      EXPECT_TRUE(close(jacfwd(itself, x, {.chunk_size = 2}), jacfwd(a_copy, x)));
      DualLevel layered;
      EXPECT_TRUE(close(jvp(itself, x, v).tangent, jvp(a_copy, x, v).tangent));
    }
  }
}

TEST_F(Rules, AreGoneWithTheLevel) {
  Tensor x = random({3});
  auto is_included = [] {
    return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericWrapper);
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
