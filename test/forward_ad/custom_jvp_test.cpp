#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Custom = ForwardAdTest;

// x^3 three ways: with a rule, by double vjp, and with neither.
template <typename Base>
struct CubeOf : Base {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return x * x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Tensor x = ctx->get_saved_variables()[0];
    return {3 * x * x * grads[0]};
  }
};
struct Cube : CubeOf<CustomJvp<Cube>> {
  static Tensors jvp(const Tensors& inputs, const Tensors&, const Tensors& tangents) {
    return {3 * inputs[0] * inputs[0] * tangents[0]};
  }
};
struct CubeByDoubleVjp : CubeOf<DoubleVjp<CubeByDoubleVjp>> {};
struct CubeWithoutRule : CubeOf<CustomJvp<CubeWithoutRule>> {};
struct StockCube : CubeOf<torch::autograd::Function<StockCube>> {};

const std::function<Tensor(const Tensor&)> kCubes[] = {
    [](const Tensor& x) { return Cube::apply(x); }, [](const Tensor& x) { return CubeByDoubleVjp::apply(x); }};

TEST_F(Custom, IsLibTorchsOwnOutsideOfLevels) {
  Tensor x = random({3}).set_requires_grad(true);
  Tensor y = Cube::apply(x);
  EXPECT_TRUE(close(y.detach(), x.detach().pow(3)));
  EXPECT_TRUE(close(torch::autograd::grad({y.sum()}, {x})[0], 3 * x.detach().square()));
}

TEST_F(Custom, HasAForwardDerivative) {
  Tensor x = random({3}), v = random({3});
  for (const auto& cube : kCubes) {
    auto [value, slope] = jvp(cube, x, v);
    EXPECT_TRUE(close(value, x.pow(3)));
    EXPECT_TRUE(close(slope, 3 * x * x * v));
  }
}

TEST_F(Custom, NestsToAnyOrder) {
  Tensor x = number(0.7);
  for (const auto& cube : kCubes) {
    const Tensor want[] = {x.pow(3), 3 * x * x, 6 * x, number(6), number(0)};
    for (int order = 0; order <= 4; ++order)
      EXPECT_TRUE(close(nth_derivative(cube, x, order), want[order])) << order;
  }
}

TEST_F(Custom, HasReverseDerivativesInsideLevels) {
  Tensor x = random({3}), v = random({3});
  for (const auto& cube : kCubes) {
    auto sum = [&](const Tensor& t) { return cube(t).sum(); };
    EXPECT_TRUE(close(vjp(cube, x).pullback(v), 3 * x * x * v));
    EXPECT_TRUE(close(hvp(sum, x, v).product, 6 * x * v));
    EXPECT_TRUE(close(hvp(sum, x, v, HvpMode::kReverseOverReverse).product, 6 * x * v));
    EXPECT_TRUE(close(jacfwd(cube, x), at::diag(3 * x * x)));
    EXPECT_TRUE(close(jacrev(cube, x), at::diag(3 * x * x)));
    EXPECT_TRUE(close(hessian(sum, x), at::diag(6 * x)));
    c10::NoGradGuard no_grad;
    EXPECT_TRUE(close(vjp(cube, x).pullback(v), 3 * x * x * v));
    EXPECT_TRUE(close(hvp(sum, x, v).product, 6 * x * v));
  }
}

TEST_F(Custom, LeavesNoTraceOfItsOwnGraph) {
  Tensor x = random({3}), v = random({3});
  for (const auto& cube : kCubes) {
    auto [value, slope] = jvp(cube, x, v);
    EXPECT_FALSE(value.requires_grad());
    EXPECT_FALSE(slope.requires_grad());
    EXPECT_FALSE(vjp(cube, x).pullback(v).requires_grad());
  }
}

TEST_F(Custom, IsPartOfTheGraphAroundIt) {
  Tensor x = random({3}).set_requires_grad(true), v = random({3});
  for (const auto& cube : kCubes) {
    Tensor slope = jvp(cube, x, v).tangent;
    EXPECT_TRUE(close(torch::autograd::grad({slope.sum()}, {x})[0], (6 * x * v).detach()));
    Tensor gradient = vjp(cube, x).pullback(v);
    EXPECT_TRUE(close(torch::autograd::grad({gradient.sum()}, {x})[0], (6 * x * v).detach()));
  }
}

TEST_F(Custom, WithoutARuleIsAnErrorThatNamesIt) {
  Tensor x = random({3});
  std::string what = error_of([&] { jvp([](const Tensor& t) { return CubeWithoutRule::apply(t); }, x, x); });
  EXPECT_THAT(what, HasSubstr("CubeWithoutRule has no forward rule"));
  EXPECT_THAT(what, HasSubstr("DoubleVjp"));
  // Where no tangent reaches it, it is only a function.
  EXPECT_TRUE(
      close(jvp([&](const Tensor& t) { return t * CubeWithoutRule::apply(x); }, x, x).tangent, x.pow(4)));
  // And LibTorch's own base class is refused by LibTorch, never differentiated as zero.
  EXPECT_THROW(jvp([](const Tensor& t) { return StockCube::apply(t); }, x, x), c10::Error);
}

struct Opaque : DoubleVjp<Opaque> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    c10::NoGradGuard no_grad;
    return {grads[0].clone().mul_(2)};
  }
};

TEST_F(Custom, DoubleVjpNeedsADifferentiableBackward) {
  Tensor x = random({3});
  EXPECT_THAT(error_of([&] { jvp([](const Tensor& t) { return Opaque::apply(t); }, x, x); }),
              HasSubstr("Opaque is not made of differentiable operators"));
}

// Several tensors in and out, and arguments that are not tensors.
struct Affine : CustomJvp<Affine> {
  static variable_list forward(AutogradContext* ctx, const Tensor& a, double factor, std::optional<Tensor> b) {
    ctx->saved_data["factor"] = factor;
    return {a * factor, b ? a + *b : a.clone()};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * ctx->saved_data["factor"].toDouble() + grads[1], Tensor(), grads[1]};
  }
  static Tensors jvp(const Tensors& inputs, const Tensors&, const Tensors& tangents, double factor) {
    return {tangents[0] * factor, inputs[1].defined() ? tangents[0] + tangents[1] : tangents[0].clone()};
  }
};

TEST_F(Custom, TakesOtherArgumentsAndGivesLists) {
  Tensors x{random({3}), random({3})}, v{random({3}), random({3})};
  auto f = [](const Tensors& t) { return Affine::apply(t[0], 2.5, std::optional<Tensor>(t[1])); };
  auto [values, slopes] = jvp(f, x, v);
  EXPECT_TRUE(close(values[1], x[0] + x[1]));
  EXPECT_TRUE(close(slopes[0], 2.5 * v[0]));
  EXPECT_TRUE(close(slopes[1], v[0] + v[1]));
  Tensors gradients = vjp(f, x).pullback(v);
  EXPECT_TRUE(close(gradients[0], 2.5 * v[0] + v[1]));
  EXPECT_TRUE(close(gradients[1], v[1]));
  auto without = [](const Tensor& t) { return Affine::apply(t, 2.5, std::optional<Tensor>())[1]; };
  EXPECT_TRUE(close(jvp(without, x[0], v[0]).tangent, v[0]));
}

// Its pullback runs forward() again, and that must drop the same elements.
struct Dropout : DoubleVjp<Dropout> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    Tensor mask = at::rand_like(x) > 0.5;
    ctx->save_for_backward({mask});
    return x * mask;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * ctx->get_saved_variables()[0]};
  }
};

TEST_F(Custom, DrawsTheSameRandomNumbersAgain) {
  Tensor x = random({64}).abs() + 1;
  auto cubes = [](const Tensor& t) { return Dropout::apply(t).pow(3); };
  auto [value, slope] = jvp(cubes, x, x);
  EXPECT_TRUE(close(slope, 3 * value));
  auto [again, pullback] = vjp(cubes, x);
  at::rand({3});
  at::Tensor next = at::rand({1});
  EXPECT_TRUE(close(pullback(x), 3 * again)) << "what is drawn in between does not matter";
  EXPECT_FALSE(at::equal(at::rand({1}), next)) << "and what is drawn later is new";
  EXPECT_TRUE(close(pullback(x), 3 * again));
  auto sum = [&](const Tensor& t) {
    Tensor dropped = Dropout::apply(t);
    return with_aux(dropped.pow(3).sum(), {dropped});
  };
  for (HvpMode mode : {HvpMode::kForwardOverReverse, HvpMode::kReverseOverReverse}) {
    auto r = hvp(sum, x, x, mode);
    EXPECT_TRUE(close(r.gradient, 3 * r.aux[0].pow(2)));
    EXPECT_TRUE(close(r.product, 6 * r.aux[0].pow(2)));
  }
}

struct WrongShape : CustomJvp<WrongShape> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.sum(); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0]}; }
  static Tensors jvp(const Tensors&, const Tensors&, const Tensors& tangents) { return tangents; }
};

TEST_F(Custom, ARuleThatReturnsTheWrongShapeIsTold) {
  Tensor x = random({3});
  EXPECT_THAT(error_of([&] { jvp([](const Tensor& t) { return WrongShape::apply(t); }, x, x); }),
              HasSubstr("returned a tangent of shape [3] for output 0, which has shape []"));
}

}  // namespace
}  // namespace overdrive::forward_ad
