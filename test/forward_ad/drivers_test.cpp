#include "bench/support/tensor_bytes.h"
#include "test/forward_ad/forward_ad_fixture.h"

#include <c10/util/Exception.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;

using Drivers = ForwardAdTest;

Tensor cube(const Tensor& x) { return x * x * x; }
Tensor cubes_summed(const Tensor& x) { return cube(x).sum(); }

TEST_F(Drivers, JvpGivesValueAndSlope) {
  Tensor x = random({3}), v = random({3});
  auto [value, slope] = jvp(cube, x, v);
  EXPECT_TRUE(close(value, cube(x)));
  EXPECT_TRUE(close(slope, 3 * x * x * v));
}

TEST_F(Drivers, VjpPullsBackAnyNumberOfTimes) {
  Tensor x = random({3});
  auto [value, pullback] = vjp(cube, x);
  for (int i = 0; i < 3; ++i) {
    Tensor u = random({3});
    EXPECT_TRUE(close(pullback(u), 3 * x * x * u));
  }
  EXPECT_FALSE(value.requires_grad());
  EXPECT_FALSE(pullback(random({3})).requires_grad());
}

TEST_F(Drivers, TakeAndGiveListsOfTensors) {
  auto f = [](const Tensors& x) { return Tensors{x[0] * x[1], x[1].sin().sum()}; };
  Tensors x{random({2}), random({2})}, v{random({2}), random({2})};
  auto [values, slopes] = jvp(f, x, v);
  EXPECT_TRUE(close(slopes[0], v[0] * x[1] + x[0] * v[1]));
  EXPECT_TRUE(close(slopes[1], (x[1].cos() * v[1]).sum()));
  Tensors gradients = vjp(f, x).pullback({at::ones({2}, at::kDouble), number(1)});
  EXPECT_TRUE(close(gradients[0], x[1]));
  EXPECT_TRUE(close(gradients[1], x[0] + x[1].cos()));
  std::vector<Tensors> forward = jacfwd(f, x), reverse = jacrev(f, x);
  for (int o : {0, 1}) {
    for (int i : {0, 1}) EXPECT_TRUE(close(forward[o][i], reverse[o][i])) << o << i;
  }
  EXPECT_TRUE(close(forward[0][1], at::diag(x[0])));
  EXPECT_TRUE(close(forward[1][0], at::zeros({2}, at::kDouble)));
  Tensor of_one_input = jacfwd([](const Tensor& t) { return Tensors{t, t * t}; }, x[0])[1];
  EXPECT_TRUE(close(of_one_input, at::diag(2 * x[0])));
  Tensors of_one_output = jacrev([](const Tensors& t) { return (t[0] * t[1]).sum(); }, x);
  EXPECT_TRUE(close(of_one_output[0], x[1]));
}

TEST_F(Drivers, PassResultsThatAreNotDifferentiated) {
  auto f = [](const Tensor& x) { return with_aux((x * x).sum(), {x * 5}); };
  Tensor x = random({3}), v = random({3});
  EXPECT_TRUE(close(jvp(f, x, v).aux[0], x * 5));
  EXPECT_TRUE(close(vjp(f, x).aux[0], x * 5));
  EXPECT_TRUE(close(jacfwd(f, x).aux[0], x * 5));
  EXPECT_TRUE(close(jacrev(f, x).aux[0], x * 5));
  EXPECT_TRUE(close(hvp(f, x, v).aux[0], x * 5));
  EXPECT_TRUE(close(hvp(f, x, v, HvpMode::kReverseOverReverse).aux[0], x * 5));
  auto [h, aux] = hessian(f, x);
  EXPECT_TRUE(close(aux[0], x * 5));
  EXPECT_TRUE(close(h, 2 * at::eye(3, at::kDouble)));
}

TEST_F(Drivers, JacobiansAgreeWhateverTheChunk) {
  Tensor w = random({4, 3});
  auto f = [&](const Tensor& x) { return w.mv(x.view({3})).tanh().view({2, 2}); };
  Tensor x = random({1, 3});
  Tensor want = (1 - f(x).view({4, 1}).square()) * w;
  for (bool vectorize : {true, false}) {
    for (std::optional<int64_t> chunk :
         {std::optional<int64_t>(), std::optional<int64_t>(1), std::optional<int64_t>(2)}) {
      JacobianOptions options{chunk, vectorize};
      SCOPED_TRACE("vectorize " + std::to_string(vectorize) + ", chunk " + std::to_string(chunk.value_or(0)));
      EXPECT_TRUE(close(jacfwd(f, x, options), want.view({2, 2, 1, 3})));
      EXPECT_TRUE(close(jacrev(f, x, options), want.view({2, 2, 1, 3})));
    }
  }
  EXPECT_THAT(error_of([&] { jacfwd(f, x, {.chunk_size = 0}); }), HasSubstr("chunk_size must be at least 1"));
}

TEST_F(Drivers, JacobiansOfNothingHaveTheirShape) {
  auto twice = [](const Tensor& x) { return 2 * x; };
  EXPECT_EQ(jacfwd(twice, random({0})).sizes(), at::IntArrayRef({0, 0}));
  EXPECT_EQ(jacrev(twice, random({0})).sizes(), at::IntArrayRef({0, 0}));
}

// Collects warnings in place of the program's handler.
class Warnings : public c10::WarningHandler {
 public:
  Warnings() : outer_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~Warnings() override { c10::WarningUtils::set_warning_handler(outer_); }
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;

 private:
  c10::WarningHandler* outer_;
};

TEST_F(Drivers, JacobiansFallBackToALoopWithOneWarning) {
  auto f = [](const Tensor& x) {
    Tensor y = x * 2;
    // A number cannot be read of many gradients at once.
    y.register_hook([](const Tensor& g) { return g.sum().item<double>() > -1e9 ? g * 3 : g; });
    return y * x;
  };
  Tensor x = random({5});
  Warnings warnings;
  Tensor looped = jacrev(f, x, {.chunk_size = 2});
  EXPECT_TRUE(close(looped, at::diag(2 * x + 3 * 2 * x)));
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_THAT(warnings.texts[0], HasSubstr("jacrev: computing one direction at a time"));
  EXPECT_TRUE(close(jacrev(f, x, {.vectorize = false}), looped));
  EXPECT_EQ(warnings.texts.size(), 1u) << "a loop by choice needs no warning";
}

// jacfwd runs the function once for each chunk; these must be runs of one function.
TEST_F(Drivers, EachRunForAJacobianDrawsTheSameRandomNumbers) {
  Tensor x = random({6});
  auto noisy = [](const Tensor& t) { return at::dropout(t.sin(), 0.5, /*train=*/true) * at::rand_like(t); };
  for (bool vectorize : {true, false}) {
    for (int64_t chunk : {1, 4, 6}) {
      SCOPED_TRACE("vectorize " + std::to_string(vectorize) + ", chunk " + std::to_string(chunk));
      torch::manual_seed(11);
      Tensor forward = jacfwd(noisy, x, {chunk, vectorize}), after_forward = random({1});
      torch::manual_seed(11);
      Tensor reverse = jacrev(noisy, x, {chunk, vectorize}), after_reverse = random({1});
      EXPECT_TRUE(close(forward, reverse));
      EXPECT_TRUE(close(after_forward, after_reverse)) << "and the program goes on as after one run";
    }
  }
  EXPECT_FALSE(at::equal(jacfwd(noisy, x), jacfwd(noisy, x))) << "another call draws other numbers";
}

TEST_F(Drivers, JacobiansDoNotHideTheFunctionsOwnErrors) {
  int calls = 0;
  auto broken = [&](const Tensor& x) -> Tensor {
    TORCH_CHECK(++calls < 0, "broken");
    return x;
  };
  EXPECT_THAT(error_of([&] { jacfwd(broken, random({5})); }), HasSubstr("broken"));
  EXPECT_EQ(calls, 1);
}

TEST_F(Drivers, HessianIsThatOfTheClosedForm) {
  Tensor a = random({3, 3}), x = random({3});
  auto f = [&](const Tensor& t) { return t.dot(a.mv(t)) + cubes_summed(t); };
  EXPECT_TRUE(close(hessian(f, x), a + a.t() + at::diag(6 * x)));
  EXPECT_TRUE(close(hessian(f, x, {.chunk_size = 2}), a + a.t() + at::diag(6 * x)));
  EXPECT_TRUE(close(hessian(f, x, {.vectorize = false}), a + a.t() + at::diag(6 * x)));
}

TEST_F(Drivers, HessianHasMixedPartials) {
  auto f = [](const Tensors& x) { return (x[0] * x[0] * x[1].sin()).sum(); };
  Tensors x{random({2}), random({2})};
  std::vector<Tensors> h = hessian(f, x);
  EXPECT_TRUE(close(h[0][0], at::diag(2 * x[1].sin())));
  EXPECT_TRUE(close(h[0][1], at::diag(2 * x[0] * x[1].cos())));
  EXPECT_TRUE(close(h[1][0], h[0][1].t()));
  EXPECT_TRUE(close(h[1][1], at::diag(-x[0] * x[0] * x[1].sin())));
}

TEST_F(Drivers, HvpIsTheSameBothWays) {
  Tensor w1 = random({6, 4}), w2 = random({4, 6});
  auto f = [&](const Tensor& x) { return w2.mv(w1.mv(x).tanh()).sigmoid().pow(2).sum(); };
  Tensor x = random({4}), v = random({4});
  auto forward = hvp(f, x, v);
  auto reverse = hvp(f, x, v, HvpMode::kReverseOverReverse);
  EXPECT_TRUE(close(forward.product, reverse.product, 1e-10));
  EXPECT_TRUE(close(forward.gradient, reverse.gradient, 1e-10));
  EXPECT_TRUE(close(forward.value, f(x)));
  EXPECT_TRUE(close(forward.product, hessian(f, x).mv(v), 1e-10));
  c10::NoGradGuard no_grad;
  EXPECT_TRUE(close(hvp(f, x, v).product, reverse.product, 1e-10));
  EXPECT_TRUE(close(hvp(f, x, v, HvpMode::kReverseOverReverse).product, reverse.product, 1e-10));
}

TEST_F(Drivers, HvpTakesListsOfTensors) {
  auto f = [](const Tensors& x) { return (x[0] * x[0] * x[1].sin()).sum(); };
  Tensors x{random({2}), random({2})}, v{random({2}), random({2})};
  for (HvpMode mode : {HvpMode::kForwardOverReverse, HvpMode::kReverseOverReverse}) {
    auto [value, gradient, product] = hvp(f, x, v, mode);
    EXPECT_TRUE(close(value, f(x)));
    EXPECT_TRUE(close(gradient[1], x[0] * x[0] * x[1].cos()));
    EXPECT_TRUE(close(product[0], 2 * x[1].sin() * v[0] + 2 * x[0] * x[1].cos() * v[1]));
    EXPECT_TRUE(close(product[1], 2 * x[0] * x[1].cos() * v[0] - x[0] * x[0] * x[1].sin() * v[1]));
  }
}

TEST_F(Drivers, NthDerivativeReachesHighOrders) {
  Tensor x = number(0.7);
  auto sin = [](const Tensor& t) { return t.sin(); };
  Tensor cycle[] = {x.sin(), x.cos(), -x.sin(), -x.cos()};
  for (int n = 0; n <= 6; ++n) EXPECT_TRUE(close(nth_derivative(sin, x, n), cycle[n % 4])) << n;
  EXPECT_TRUE(close(nth_derivative([](const Tensor& t) { return t.pow(4); }, x, 5), number(0)));
  EXPECT_THAT(error_of([&] { nth_derivative(sin, x, -1); }), HasSubstr("must not be negative"));
}

TEST_F(Drivers, SayWhatDoesNotFit) {
  Tensor x = random({3});
  auto two = [](const Tensors& t) { return t[0] * t[1]; };
  EXPECT_THAT(error_of([&] { jvp(two, Tensors{x, x}, {x}); }), HasSubstr("there are 2 inputs but 1 tangents"));
  EXPECT_THAT(error_of([&] { jvp(cube, x, random({2})); }),
              HasSubstr("the primal has shape [3], the tangent [2]"));
  EXPECT_THAT(error_of([&] { vjp(cube, x).pullback(random({2})); }),
              HasSubstr("output 0 has shape [3], its cotangent [2]"));
  EXPECT_THAT(error_of([&] { hvp(cube, x, x); }), HasSubstr("must return one number"));
  EXPECT_THAT(error_of([&] { jacfwd(cube, at::ones({2}, at::kLong)); }),
              HasSubstr("must be real floating point"));
  EXPECT_THAT(error_of([&] { jvp([](const Tensor&) { return Tensor(); }, x, x); }), HasSubstr("is undefined"));
}

TEST_F(Drivers, LeaveNothingOpenWhenTheFunctionThrows) {
  auto broken = [](const Tensor& x) -> Tensor { TORCH_CHECK(false, "broken at ", x.sizes()); };
  auto broken_inside = [&](const Tensor& x) {
    return jvp([&](const Tensor& y) { return vjp(broken, y).value; }, x, x).value;
  };
  Tensor x = random({3});
  for (auto call : std::vector<std::function<void()>>{
           [&] { jvp(broken, x, x); }, [&] { vjp(broken, x); }, [&] { jacfwd(broken, x); },
           [&] { hessian(broken_inside, x); }, [&] { hvp(broken, x, x); },
           [&] { nth_derivative(broken, x, 4); }, [&] { jacrev(broken_inside, x); }}) {
    EXPECT_THAT(error_of(call), HasSubstr("broken at [3]"));
    EXPECT_TRUE(nothing_is_open());
  }
}

TEST_F(Drivers, JvpNeedsNoMoreMemoryForADeeperChain) {
  Tensor x = random({256}), v = random({256});
  auto peak = [&](int depth) {
    auto chain = [&](const Tensor& start) {
      Tensor y = start;
      for (int i = 0; i < depth; ++i) y = y.sin();
      return y;
    };
    return bench::TensorBytes::peak_of([&] { jvp(chain, x, v); });
  };
  EXPECT_GT(peak(10), 0);
  EXPECT_EQ(peak(1000), peak(10));
}

TEST_F(Drivers, KeepTheCallersGradMode) {
  Tensor x = random({3});
  c10::NoGradGuard no_grad;
  EXPECT_TRUE(close(vjp(cube, x).pullback(at::ones({3}, at::kDouble)), 3 * x * x));
  EXPECT_TRUE(close(jvp(cube, x, x).tangent, 3 * x * x * x));
  EXPECT_TRUE(close(jacrev(cube, x), at::diag(3 * x * x)));
  EXPECT_FALSE(c10::GradMode::is_enabled());
  c10::GradMode::set_enabled(true);
  EXPECT_TRUE(close(jacrev(cube, x), at::diag(3 * x * x)));
  EXPECT_TRUE(c10::GradMode::is_enabled());
  c10::GradMode::set_enabled(false);
}

}  // namespace
}  // namespace overdrive::forward_ad
