// Reverse mode around forward mode: "gradients of a jvp work". LibTorch's forward formulas were
// made to be computed, not to be differentiated in turn.
#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;

using Function = std::function<Tensor(const Tensor&)>;

struct Case {
  const char* name;
  Function f;
};
void PrintTo(const Case& op, std::ostream* out) { *out << op.name; }

class GradientOfJvp : public ForwardAdTest, public testing::WithParamInterface<Case> {};

// d/dx <w, J(x) v> is the Hessian product of <w, f>, which reverse mode alone gives, too.
TEST_P(GradientOfJvp, IsTheHessianProduct) {
  const Function& f = GetParam().f;
  Tensor x = at::rand({3, 3}, at::kDouble) + 0.1, v = random({3, 3}), weights = random(f(x).sizes());
  auto along = [&](const Tensor& t) { return (jvp(f, t, v).tangent * weights).sum(); };
  constexpr double kStep = 1e-5;
  auto gradient = [&](double step) { return vjp(f, x + step * v).pullback(weights); };
  Tensor want = (gradient(kStep) - gradient(-kStep)) / (2 * kStep);
  Tensor leaf = x.clone().set_requires_grad(true);
  EXPECT_TRUE(close(torch::autograd::grad({along(leaf)}, {leaf})[0], want, 1e-7));
  EXPECT_TRUE(close(jacrev(along, x), want, 1e-7)) << "with a driver of reverse mode";
  EXPECT_TRUE(close(jacfwd(along, x), want, 1e-7)) << "with a driver of forward mode";
  // Not with regard to the argument, but to what the function takes from outside.
  Tensor shift = at::zeros({3, 3}, at::kDouble).set_requires_grad(true);
  auto shifted = [&](const Tensor& t) { return f(t + shift); };
  Tensor of_shift = torch::autograd::grad({(jvp(shifted, x, v).tangent * weights).sum()}, {shift})[0];
  EXPECT_TRUE(close(of_shift, want, 1e-7));
}

// Once below a level, by hand, without create_graph: LibTorch then takes other formulas.
TEST_P(GradientOfJvp, IsTheJvpOfAGradientByHand) {
  const Function& f = GetParam().f;
  Tensor x = at::rand({3, 3}, at::kDouble) + 0.1, v = random({3, 3}), weights = random(f(x).sizes());
  auto loss = [&](const Tensor& t) { return (f(t) * weights).sum(); };
  auto gradient = [&](const Tensor& t) {
    Tensor leaf = t.view_as(t).set_requires_grad(true);
    return torch::autograd::grad({loss(leaf)}, {leaf})[0];
  };
  Tensor want = hvp(loss, x, v).product;
  EXPECT_TRUE(close(jvp(gradient, x, v).tangent, want, 1e-9));
  DualLevel layered;
  EXPECT_TRUE(close(jvp(gradient, x, v).tangent, want, 1e-9));
}

Tensor regular(const Tensor& x) { return x.mm(x.t()) + 2 * at::eye(3, at::kDouble); }

INSTANTIATE_TEST_SUITE_P(
    Ops, GradientOfJvp,
    testing::Values(
        Case{"softmax", [](const Tensor& x) { return at::softmax(x, 1); }},
        Case{"log_softmax", [](const Tensor& x) { return at::log_softmax(x, 0); }},
        Case{"logsumexp",
             [](const Tensor& x) {
               return x.logsumexp(at::IntArrayRef{0, 1});
             }},
        Case{"logsumexp_kept", [](const Tensor& x) { return x.logsumexp({1}, true); }},
        Case{"norm_of_order_1", [](const Tensor& x) { return x.square().norm(1, 1); }},
        Case{"vector_norm_of_order_1", [](const Tensor& x) { return at::linalg_vector_norm(x.exp(), 1); }},
        Case{"glu",
             [](const Tensor& x) {
               return at::glu(at::cat({x, x.sin()}), 0);
             }},
        Case{"hardsigmoid", [](const Tensor& x) { return at::hardsigmoid(x.exp()) * x; }},
        Case{"det", [](const Tensor& x) { return at::linalg_det(x); }},
        Case{"logdet", [](const Tensor& x) { return at::logdet(regular(x)); }},
        Case{"solve", [](const Tensor& x) { return at::linalg_solve(regular(x), x); }},
        Case{"cholesky_inverse", [](const Tensor& x) { return at::cholesky_inverse(regular(x).tril()); }},
        Case{"householder_product",
             [](const Tensor& x) { return at::linalg_householder_product(x.exp(), x[0]); }},
        Case{"layer_norm", [](const Tensor& x) { return at::layer_norm(x, {3}); }},
        Case{"cdist", [](const Tensor& x) { return at::cdist(x, x.exp()); }}),
    [](const auto& named) { return std::string(named.param.name); });

// -inf has no weight, and no derivative.
TEST_F(ForwardAdTest, GradientOfTheJvpOfASoftmaxSeesMaskedElements) {
  Tensor x = random({2, 3}), v = random({2, 3}), mask = at::eye(2, 3, at::kDouble) > 0;
  auto f = [&](const Tensor& t) { return at::softmax(t.masked_fill(mask, -INFINITY), 1).square().sum(); };
  Tensor leaf = x.clone().set_requires_grad(true);
  Tensor gradient = torch::autograd::grad({jvp(f, leaf, v).tangent}, {leaf})[0];
  EXPECT_TRUE(close(gradient, hvp(f, x, v).product));
}

}  // namespace
}  // namespace overdrive::forward_ad
