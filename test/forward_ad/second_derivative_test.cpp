// Two derivatives in one run: each rule, networks and their parameters, against jvp() inside jvp() and against
// double backward.
#include "test/forward_ad/forward_ad_fixture.h"

#include <torch/nn.h>

#include <functional>
#include <string>
#include <vector>

namespace overdrive::forward_ad {
namespace {
using at::Tensor;
using Map = std::function<Tensor(const Tensor&)>;

Tensor by_nested_jvp(const Map& f, const Tensor& x, const Tensor& v) {
  return jvp([&](const Tensor& t) { return jvp(f, t, v).tangent; }, x, v).tangent;
}

// Of a function whose rows do not mix: d/dt of the gradient along v.
Tensor by_double_backward(const Map& f, const Tensor& x, const Tensor& v) {
  const Tensor leaf = x.detach().requires_grad_();
  const Tensor y = f(leaf);
  const Tensor u = at::ones_like(y).requires_grad_();  // the double-vjp trick: J v is linear in u
  auto along = [&](const Tensor& result, const Tensor& by, const Tensor& weight) {
    return torch::autograd::grad({result}, {by}, {weight}, true, true, true)[0];
  };
  const Tensor gradient = along(y, leaf, u);
  const Tensor slope = along(gradient, u, v);
  const Tensor w = at::ones_like(slope).requires_grad_();
  const Tensor of_slope = along(slope, leaf, w);
  if (!of_slope.defined() || !of_slope.requires_grad()) return at::zeros_like(y);
  const Tensor second = along(of_slope, w, v);
  return second.defined() ? second : at::zeros_like(y);
}

class SecondDerivatives : public ForwardAdTest {
 protected:
  // A matrix of positive numbers away from one another, so that no branch is near.
  const Tensor x_ = at::rand({3, 4}, at::kDouble) + 0.3;
  const Tensor v_ = random({3, 4});
  const Tensor matrix_ = random({4, 4}), row_ = random({4}), cube_ = random({2, 4, 4});

  void expect_one_run(const char* name, const Map& f) {
    SCOPED_TRACE(name);
    const Tensor leaf = x_.clone().requires_grad_();
    auto [value, first, second, nested_because] = second_derivative(f, leaf, v_);
    EXPECT_EQ(nested_because, "");
    EXPECT_TRUE(at::equal(value, f(x_)));
    EXPECT_TRUE(close(first, jvp(f, x_, v_).tangent));
    const Tensor nested = by_nested_jvp(f, leaf, v_);
    EXPECT_TRUE(close(second, nested));
    EXPECT_TRUE(close(second, by_double_backward(f, x_, v_)));
    auto gradient = [&](const Tensor& of) {
      if (!of.requires_grad()) return at::zeros_like(leaf);
      const Tensor made = torch::autograd::grad({of.sum()}, {leaf}, {}, true, false, true)[0];
      return made.defined() ? made : at::zeros_like(leaf);
    };
    EXPECT_TRUE(close(gradient(second), gradient(nested)));
  }
};

struct Rule {
  const char* name;
  Map f;
};

TEST_F(SecondDerivatives, OfEachElementwiseRule) {
  const Tensor mask = x_ > 0.8;
  const std::vector<Rule> rules = {
      {"exp", [](const Tensor& x) { return x.exp(); }},
      {"expm1", [](const Tensor& x) { return x.expm1(); }},
      {"log", [](const Tensor& x) { return x.log(); }},
      {"log1p", [](const Tensor& x) { return x.log1p(); }},
      {"sin", [](const Tensor& x) { return x.sin(); }},
      {"cos", [](const Tensor& x) { return x.cos(); }},
      {"tan", [](const Tensor& x) { return x.tan(); }},
      {"atan", [](const Tensor& x) { return x.atan(); }},
      {"sinh", [](const Tensor& x) { return x.sinh(); }},
      {"cosh", [](const Tensor& x) { return x.cosh(); }},
      {"erf", [](const Tensor& x) { return x.erf(); }},
      {"sqrt", [](const Tensor& x) { return x.sqrt(); }},
      {"rsqrt", [](const Tensor& x) { return x.rsqrt(); }},
      {"reciprocal", [](const Tensor& x) { return x.reciprocal(); }},
      {"abs", [](const Tensor& x) { return (x * x - 0.6).abs(); }},
      {"pow 0", [](const Tensor& x) { return x.pow(0) * x; }},
      {"pow 1", [](const Tensor& x) { return x.pow(1) * x; }},
      {"pow 2", [](const Tensor& x) { return x.sin().pow(2); }},
      {"pow 3", [](const Tensor& x) { return x.sin().pow(3); }},
      {"pow 2.5", [](const Tensor& x) { return x.exp().pow(2.5); }},
      {"masked_fill", [&](const Tensor& x) { return x.exp().masked_fill(mask, 3); }},
      {"tanh", [](const Tensor& x) { return x.tanh().tanh(); }},
      {"sigmoid", [](const Tensor& x) { return x.sigmoid().sigmoid(); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x.exp(), 2, 4); }},
      {"silu", [](const Tensor& x) { return at::silu(x.sin()); }},
      {"gelu", [](const Tensor& x) { return at::gelu(x.log()); }},
      {"gelu by tanh", [](const Tensor& x) { return at::gelu(x.log(), "tanh"); }},
      {"relu", [](const Tensor& x) { return at::relu(x.log()); }},
      {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x.log(), 0.1); }}};
  for (const Rule& rule : rules) expect_one_run(rule.name, rule.f);
}

TEST_F(SecondDerivatives, OfEachSumAndProduct) {
  const Tensor image = random({2, 4, 3});
  const std::vector<Rule> rules = {
      {"add", [&](const Tensor& x) { return at::add(x.exp(), row_, 3); }},
      {"add a number", [](const Tensor& x) { return x.exp() + 2; }},
      {"sub", [&](const Tensor& x) { return at::sub(row_, x.exp(), 2); }},
      {"sub a number", [](const Tensor& x) { return x.exp() - 2; }},
      {"a number minus", [](const Tensor& x) { return 2 - x.exp(); }},
      {"a number over", [](const Tensor& x) { return 2 / x.exp(); }},
      {"rsub", [](const Tensor& x) { return at::rsub(x.exp(), x.sin(), 2); }},
      {"rsub a number", [](const Tensor& x) { return at::rsub(x.exp(), 3, 2); }},
      {"mul", [](const Tensor& x) { return x.exp() * x.sin() * 3; }},
      {"mul by a row", [&](const Tensor& x) { return x.exp() * row_; }},
      {"mul a column", [](const Tensor& x) { return x.sum(1, true) * x; }},
      {"div", [](const Tensor& x) { return x.sin() / x.exp(); }},
      {"div by a row", [&](const Tensor& x) { return x.sin() / (row_.square() + 1); }},
      {"a row divided", [&](const Tensor& x) { return row_ / x; }},
      {"div by a number", [](const Tensor& x) { return x.exp() / 3; }},
      {"where", [](const Tensor& x) { return at::where(x > 0.8, x.exp(), x.sin()); }},
      {"mm", [&](const Tensor& x) { return x.exp().mm(matrix_).mm(x.t()); }},
      {"matmul", [&](const Tensor& x) { return at::matmul(cube_, x.exp().t()); }},
      {"mv and dot", [&](const Tensor& x) { return x.exp().mv(row_).dot(x.select(1, 0)); }},
      {"bmm",
       [&](const Tensor& x) {
         return at::bmm(cube_, x.exp().t().expand({2, 4, 3}));
       }},
      {"linear", [&](const Tensor& x) { return at::linear(x.exp(), matrix_, row_); }},
      {"linear's weight", [&](const Tensor& x) { return at::linear(matrix_, x.exp(), x.select(1, 1)); }},
      {"linear's bias", [&](const Tensor& x) { return at::linear(matrix_, matrix_, x.exp().select(0, 0)); }},
      {"addmm", [&](const Tensor& x) { return at::addmm(x.sin(), x.exp(), matrix_, 2, 3); }},
      {"addmv", [&](const Tensor& x) { return at::addmv(x.sin().select(1, 0), x.exp(), row_, 2, 3); }},
      {"baddbmm",
       [&](const Tensor& x) {
         return at::baddbmm(x.sin(), x.exp().expand({2, 3, 4}), cube_);
       }},
      {"convolution", [&](const Tensor& x) {
         return at::conv1d(x.exp().t().unsqueeze(0), image, at::ones({2}, at::kDouble));
       }}};
  for (const Rule& rule : rules) expect_one_run(rule.name, rule.f);
}

TEST_F(SecondDerivatives, OfEachOperatorThatMovesOrAdds) {
  const Tensor index = at::tensor({2, 0, 0});
  const std::vector<Rule> rules = {
      {"view",
       [](const Tensor& x) {
         return x.exp().view({2, 6});
       }},
      {"reshape",
       [](const Tensor& x) {
         return x.exp().t().reshape({2, 6});
       }},
      {"flatten", [](const Tensor& x) { return x.exp().flatten(); }},
      {"permute",
       [](const Tensor& x) {
         return x.exp().permute({1, 0}).contiguous();
       }},
      {"transpose", [](const Tensor& x) { return x.exp().transpose(0, 1); }},
      {"slice", [](const Tensor& x) { return x.exp().slice(1, 1, 3); }},
      {"narrow", [](const Tensor& x) { return x.exp().narrow(0, 1, 2); }},
      {"expand",
       [](const Tensor& x) {
         return x.exp().expand({2, 3, 4});
       }},
      {"unsqueeze", [](const Tensor& x) { return x.exp().unsqueeze(1).squeeze(1); }},
      {"repeat",
       [](const Tensor& x) {
         return x.exp().repeat({2, 1});
       }},
      {"flip", [](const Tensor& x) { return x.exp().flip(0).roll(1, 1); }},
      {"diagonal", [](const Tensor& x) { return x.exp().diagonal() + x.tril().sum() - x.triu().sum(); }},
      {"cumsum", [](const Tensor& x) { return x.exp().cumsum(1); }},
      {"cat",
       [&](const Tensor& x) {
         return at::cat({x, x.exp(), matrix_});
       }},
      {"stack",
       [](const Tensor& x) {
         return at::stack({x, x.exp()}, 1);
       }},
      {"split", [](const Tensor& x) { return x.exp().split(2, 1)[1] * x.unbind(1)[0].unsqueeze(1); }},
      {"chunk", [](const Tensor& x) { return x.exp().chunk(2, 1)[0]; }},
      {"index", [&](const Tensor& x) { return x.exp().index({index}); }},
      {"index_select", [&](const Tensor& x) { return x.exp().index_select(0, index); }},
      {"gather", [&](const Tensor& x) { return x.exp().gather(1, index.unsqueeze(1)); }},
      {"pad",
       [](const Tensor& x) {
         return at::constant_pad_nd(x.exp(), {1, 1}, 2);
       }},
      {"clone", [](const Tensor& x) { return x.exp().clone(); }},
      {"to", [](const Tensor& x) { return x.exp().to(at::kDouble, false, true); }},
      {"neg", [](const Tensor& x) { return -x.exp(); }},
      {"sum", [](const Tensor& x) { return x.exp().sum() + x.exp().sum(0); }},
      {"mean", [](const Tensor& x) { return x.exp().mean() + x.exp().mean(0, true); }},
      {"einsum",
       [&](const Tensor& x) {
         return at::einsum("ij,jk->ik", {x.exp(), matrix_});
       }},
      {"detach", [](const Tensor& x) { return x.detach() * x.exp(); }},
      {"comparisons",
       [](const Tensor& x) { return (x > 0.8) * x.exp() + at::ones_like(x) + x.argmax() + x.sign(); }}};
  for (const Rule& rule : rules) expect_one_run(rule.name, rule.f);
}

TEST_F(SecondDerivatives, OfAPowerAtZero) {
  const Tensor zero = at::zeros({2}, at::kDouble), one = at::ones({2}, at::kDouble);
  for (int64_t n : {0, 1, 2, 3, 4}) {
    auto f = [&](const Tensor& x) { return x.sin().pow(n); };
    const auto r = second_derivative(f, zero, one);
    EXPECT_EQ(r.nested_because, "");
    EXPECT_TRUE(at::equal(r.second, at::full({2}, n == 2 ? 2.0 : 0.0, at::kDouble))) << n << r.second;
  }
}

// u_xx in the loss of a network, as for a differential equation.
TEST_F(SecondDerivatives, OfANetworkReachItsParameters) {
  torch::nn::Sequential net(torch::nn::Linear(2, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
                            torch::nn::SiLU(), torch::nn::Linear(8, 8), torch::nn::GELU(),
                            torch::nn::Linear(8, 1));
  net->to(at::kDouble);
  const Tensor x = random({5, 2}), v = at::tensor({1.0, 0.0}, at::kDouble).expand({5, 2});
  auto f = [&](const Tensor& t) { return net->forward(t); };
  auto gradients = [&](const Tensor& second) {
    return torch::autograd::grad({second.square().mean()}, net->parameters(), {}, false, false, true);
  };
  const auto one = second_derivative(f, x, v);
  EXPECT_EQ(one.nested_because, "");
  EXPECT_TRUE(at::equal(one.value, f(x)));
  const auto ours = gradients(one.second), nested = gradients(by_nested_jvp(f, x, v));
  const Tensor leaf = x.clone().requires_grad_();
  auto slope = [&](const Tensor& of) {
    return torch::autograd::grad({of.sum()}, {leaf}, {}, true, true)[0].select(1, 0);
  };
  const auto reverse = gradients(slope(slope(f(leaf))).unsqueeze(1));
  ASSERT_FALSE(ours.back().defined());  // the last bias moves no derivative
  for (size_t i = 0; i + 1 < ours.size(); ++i) {
    EXPECT_TRUE(close(ours[i], nested[i]));
    EXPECT_TRUE(close(ours[i], reverse[i]));
  }
}

TEST_F(SecondDerivatives, OfAFunctionalCall) {
  torch::nn::Linear linear(4, 4);
  linear->to(at::kDouble);
  const Tensor weight = random({4, 4}).requires_grad_();
  auto f = [&](const Tensor& x) { return functional_call(linear, {{"weight", weight}}, x.exp()).tanh(); };
  const auto r = second_derivative(f, x_, v_);
  EXPECT_EQ(r.nested_because, "");
  EXPECT_TRUE(close(r.second, by_nested_jvp(f, x_, v_)));
  auto gradient = [&](const Tensor& of) { return torch::autograd::grad({of.sum()}, {weight})[0]; };
  EXPECT_TRUE(close(gradient(r.second), gradient(by_nested_jvp(f, x_, v_))));
}

TEST_F(SecondDerivatives, TakeListsAuxAndDirectionsLeftOut) {
  auto f = [](const Tensors& in) {
    return with_aux(Tensors{in[0] * in[1], in[1].exp(), at::ones({2}, at::kDouble)}, {in[0].sin()});
  };
  const auto r = second_derivative(f, Tensors{x_, x_ + 1}, Tensors{v_, Tensor()});
  EXPECT_EQ(r.nested_because, "");
  EXPECT_TRUE(at::equal(r.aux[0], x_.sin()));
  EXPECT_TRUE(close(r.first[0], v_ * (x_ + 1)));
  EXPECT_TRUE(close(r.second[0], at::zeros_like(x_)));
  EXPECT_TRUE(close(r.first[1], at::zeros_like(x_)));
  EXPECT_TRUE(at::equal(r.second[2], at::zeros({2}, at::kDouble)));
  const auto both = second_derivative(f, Tensors{x_, x_ + 1}, Tensors{v_, v_});
  EXPECT_TRUE(close(both.second[0], 2 * v_ * v_));
  EXPECT_FALSE(both.aux[0]._fw_grad(0).defined());
}

TEST_F(SecondDerivatives, HaveMemoryOfTheirOwn) {
  const Tensor before = v_.clone();
  auto [value, first, second, nested_because] =
      second_derivative([](const Tensor& x) { return x + 1; }, x_, v_);
  first.add_(1);
  second.add_(1);
  EXPECT_TRUE(at::equal(v_, before));
  EXPECT_TRUE(at::equal(value, x_ + 1));
  auto wide = second_derivative([&](const Tensor& x) { return x.sum() + matrix_; }, x_, v_);
  wide.first.add_(1);
  EXPECT_TRUE(close(wide.first, (v_.sum() + 1).expand({4, 4})));
}

}  // namespace
}  // namespace overdrive::forward_ad
