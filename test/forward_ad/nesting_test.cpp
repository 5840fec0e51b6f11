// Drivers inside drivers, beside reverse mode, and through the Overdrive engine.
#include "test/forward_ad/forward_ad_fixture.h"

#include "engine/engine.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using torch::autograd::grad;

using Nesting = ForwardAdTest;

Tensor slope(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  return jvp(f, x, at::ones_like(x)).tangent;
}
Tensor gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  auto r = vjp(f, x);
  return r.pullback(at::ones_like(r.value));
}

// The classic test: the inner derivative must not see the outer perturbation of x.
TEST_F(Nesting, DoesNotConfusePerturbations) {
  using D = Tensor (*)(const std::function<Tensor(const Tensor&)>&, const Tensor&);
  for (D outer : {&slope, &gradient}) {
    for (D inner : {&slope, &gradient}) {
      // d/dx (x * d/dy (x + y)) = 1
      auto f = [&](const Tensor& x) { return x * inner([&](const Tensor& y) { return x + y; }, number(1)); };
      EXPECT_TRUE(close(outer(f, number(1)), number(1)));
      // d/dx (x * d/dy (x * y)) = 2 x
      auto g = [&](const Tensor& x) { return x * inner([&](const Tensor& y) { return x * y; }, number(2)); };
      EXPECT_TRUE(close(outer(g, number(3)), number(6)));
      // d/dx (d/dy (x * y^2) at y = x) = (2 x^2)' = 4 x
      auto h = [&](const Tensor& x) { return inner([&](const Tensor& y) { return x * y * y; }, x); };
      EXPECT_TRUE(close(outer(h, number(3)), number(12)));
    }
  }
}

// An inner derivative of a function that its caller built from the outer variable.
TEST_F(Nesting, KeepsClosuresApart) {
  auto shifted = [](const Tensor& u) {
    return [u](const std::function<Tensor(const Tensor&)>& f) {
      return [u, f](const Tensor& x) { return f(x + u); };
    };
  };
  auto outer = [&](const Tensor& u) {
    auto shift = shifted(u);
    return slope(
        shift([&](const Tensor& x) { return slope(shift([](const Tensor& y) { return y.exp(); }), x); }),
        number(0.5));
  };
  EXPECT_TRUE(close(slope(outer, number(0)), 2 * number(0.5).exp()));
}

TEST_F(Nesting, GoesToAnyOrderInAnyMixture) {
  Tensor x = number(0.6);
  std::function<Tensor(const Tensor&)> base = [](const Tensor& t) { return t.sin() * t.exp(); };
  // Each bit of the pattern picks forward or reverse; sin(x) e^x has derivatives -4 f after four.
  for (int pattern = 0; pattern < 16; ++pattern) {
    auto f = base;
    for (int order = 0; order < 4; ++order) {
      bool forward = pattern >> order & 1;
      f = [f, forward](const Tensor& t) { return forward ? slope(f, t) : gradient(f, t); };
    }
    EXPECT_TRUE(close(f(x), -4 * base(x), 1e-11)) << "pattern " << pattern;
  }
}

TEST_F(Nesting, MixesPartialsOfTwoInputs) {
  // d^3/(dx dy dx) of x^2 y^3 at (x, y): 2 * 3 y^2
  Tensor x = number(1.3), y = number(0.4);
  auto in_y = [](const Tensor& a) {
    return [a](const Tensor& b) { return slope([b](const Tensor& c) { return c * c * b * b * b; }, a); };
  };
  auto in_x = [&](const Tensor& a) { return slope(in_y(a), y); };
  EXPECT_TRUE(close(slope(in_x, x), 6 * y * y));
  EXPECT_TRUE(close(gradient(in_x, x), 6 * y * y));
}

TEST_F(Nesting, GivesGradientsOfAJvp) {
  Tensor x = random({3}).set_requires_grad(true), v = random({3}).set_requires_grad(true);
  Tensor w = random({3}).set_requires_grad(true);
  auto [value, tangent] = jvp([&](const Tensor& t) { return w * t * t; }, x, v);
  auto gradients = grad({tangent.sum()}, {x, v, w}, {}, /*retain_graph=*/true);
  EXPECT_TRUE(close(gradients[0], 2 * w * v));
  EXPECT_TRUE(close(gradients[1], 2 * w * x));
  EXPECT_TRUE(close(gradients[2], 2 * x * v));
  EXPECT_TRUE(close(grad({value.sum()}, {w})[0], x * x));
}

TEST_F(Nesting, GivesGradientsOfPullbacksAndHessianProducts) {
  Tensor x = random({3}), w = random({3}).set_requires_grad(true);
  auto f = [&](const Tensor& t) { return (w * t * t * t).sum(); };
  EXPECT_TRUE(close(grad({gradient(f, x).sum()}, {w})[0], 3 * x * x));
  EXPECT_TRUE(close(grad({hvp(f, x, x).product.sum()}, {w})[0], 6 * x * x));
  EXPECT_TRUE(close(grad({jacrev(f, x).sum()}, {w})[0], 3 * x * x));
  EXPECT_TRUE(close(grad({hessian(f, x).sum()}, {w})[0], 6 * x));
}

TEST_F(Nesting, JacobiansNest) {
  Tensor x = random({3});
  auto f = [](const Tensor& t) { return t.pow(3); };
  Tensor third =
      jacfwd([&](const Tensor& a) { return jacrev([&](const Tensor& b) { return jacfwd(f, b); }, a); }, x);
  Tensor want = at::zeros({3, 3, 3, 3}, at::kDouble);
  for (int i = 0; i < 3; ++i) want[i][i][i][i] = 6;
  EXPECT_TRUE(close(third, want));
}

TEST_F(Nesting, ForwardOverReverseRunsOnTheOverdriveEngine) {
  engine::ScopedInstall overdrive;
  Tensor x = random({4}), v = random({4});
  auto f = [](const Tensor& t) { return t.sin().pow(3).sum(); };
  uint64_t before = engine::stats().backwards;
  Tensor product = hvp(f, x, v).product;
  EXPECT_EQ(engine::stats().backwards, before + 1);
  EXPECT_TRUE(close(product, hessian(f, x).mv(v)));
  EXPECT_TRUE(close(product, hvp(f, x, v, HvpMode::kReverseOverReverse).product, 1e-10));
  EXPECT_GT(engine::stats().backwards, before + 3);
}

}  // namespace
}  // namespace overdrive::forward_ad
