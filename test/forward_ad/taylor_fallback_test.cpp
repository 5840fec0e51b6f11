// Where a second derivative does not come from one run: the results are those of jvp() inside jvp(), the reason
// is told, and nothing of the run that was given up remains.
#include "test/forward_ad/forward_ad_fixture.h"

#include <torch/nn.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace overdrive::forward_ad {
namespace {
using at::Tensor;
using testing::HasSubstr;
using Map = std::function<Tensor(const Tensor&)>;

class GivenUp : public ForwardAdTest {
 protected:
  const Tensor x_ = at::rand({3, 4}, at::kDouble) + 0.3, v_ = random({3, 4});

  Tensor nested(const Map& f) {
    return jvp([&](const Tensor& t) { return jvp(f, t, v_).tangent; }, x_, v_).tangent;
  }
  void expect_nested(const char* why, const Map& f) {
    SCOPED_TRACE(why);
    const auto r = second_derivative(f, x_, v_);
    EXPECT_THAT(r.nested_because, HasSubstr(why));
    EXPECT_TRUE(close(r.value, f(x_)));
    EXPECT_TRUE(close(r.first, jvp(f, x_, v_).tangent));
    EXPECT_TRUE(close(r.second, nested(f)));
    EXPECT_TRUE(nothing_is_open());
  }
};

TEST_F(GivenUp, AtAnOperatorWithoutARule) {
  expect_nested("aten::_softmax", [](const Tensor& x) { return x.softmax(1); });
  expect_nested("aten::pow.Tensor_Tensor", [](const Tensor& x) { return x.pow(x); });
  expect_nested("complex", [](const Tensor& x) { return x * at::ones({}, at::kComplexDouble); });
}

TEST_F(GivenUp, AtAWriteInPlace) {
  expect_nested("aten::tanh_", [](const Tensor& x) { return x.exp().tanh_(); });
  expect_nested("aten::copy_", [](const Tensor& x) {
    Tensor y = at::zeros({3, 4}, at::kDouble);
    y.select(0, 1).copy_(x.exp().select(0, 1));
    return y.exp();
  });
  expect_nested("aten::mul_", [](const Tensor& x) {
    Tensor y = x.exp(), row = y.select(0, 1);
    row.mul_(2);
    return y.sin();
  });
  expect_nested("in place", [&](const Tensor& x) {
    Tensor y = at::ones({3, 4}, at::kDouble), row = y.select(0, 1);
    y.add_(x.exp());
    return row.sin() * x.select(0, 1);
  });
  auto out = [](const Tensor& x) {
    Tensor y = at::empty({0}, at::kDouble);
    return at::exp_out(y, x) * x;
  };
  EXPECT_THAT(error_of([&] { second_derivative(out, x_, v_); }), HasSubstr("it is an out= function"));
}

// The write cannot be seen in the tensor with derivatives, and LibTorch's tangents do not see it either.
TEST_F(GivenUp, NotAtAWriteIntoATensorWithoutDerivatives) {
  auto f = [](const Tensor& x) {
    Tensor scale = at::ones({4}, at::kDouble);
    scale.mul_(3).select(0, 0).zero_();
    return x.exp() * scale;
  };
  const auto r = second_derivative(f, x_, v_);
  EXPECT_EQ(r.nested_because, "");
  EXPECT_TRUE(close(r.second, nested(f)));
}

TEST_F(GivenUp, AtADerivativeInside) {
  auto cube = [](const Tensor& t) { return t * t * t; };
  const std::vector<Map> functions = {
      [&](const Tensor& x) { return jvp(cube, x, x).tangent; },
      [&](const Tensor& x) { return vjp(cube, x).pullback(x.exp()); },
      [&](const Tensor& x) { return grad([](const Tensor& t) { return t.pow(3).sum(); }, x); },
      [&](const Tensor& x) { return vmap([](const Tensor& t) { return t * t.sum(); }, x); },
      [&](const Tensor& x) { return second_derivative(cube, x, x.exp()).second; },
      [&](const Tensor& x) {
        DualLevel level;
        return unpack_dual(make_dual(x, x, level).exp(), level).tangent;
      }};
  for (size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE(i);
    const auto r = second_derivative(functions[i], x_, v_);
    EXPECT_TRUE(close(r.first, jvp(functions[i], x_, v_).tangent));
    EXPECT_TRUE(close(r.second, nested(functions[i])));
  }
}

// Reverse mode would read saved tensors without derivatives. jvp() inside jvp() refuses it.
TEST_F(GivenUp, AtABackwardInside) {
  const Tensor weight = at::ones({4}, at::kDouble).requires_grad_();
  auto f = [&](const Tensor& x) {
    Tensor y = (x.exp() * weight * weight).tanh().sum();
    return torch::autograd::grad({y}, {weight}, {}, true, /*create_graph=*/true)[0];
  };
  const std::string error = error_of([&] { second_derivative(f, x_, v_); });
  EXPECT_THAT(error, HasSubstr("does not require grad"));
  EXPECT_THAT(error_of([&] { nested(f); }), HasSubstr("does not require grad"));
}

struct Twice : torch::autograd::Function<Twice> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return 2 * x; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {2 * grads[0]};
  }
};
struct Thrice : CustomJvp<Thrice> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return 3 * x.detach(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {3 * grads[0]};
  }
  static Tensors jvp(const Tensors&, const Tensors&, const Tensors& tangents) { return {3 * tangents[0]}; }
};

TEST_F(GivenUp, AtACustomFunction) {
  auto twice = [](const Tensor& x) { return Twice::apply(x.exp()); };
  EXPECT_THAT(error_of([&] { second_derivative(twice, x_, v_); }), HasSubstr("overdrive::CustomJvp"));
  const c10::NoGradGuard no_grad;
  EXPECT_THAT(error_of([&] { second_derivative(twice, x_, v_); }), HasSubstr("overdrive::CustomJvp"));
  const auto r = second_derivative([](const Tensor& x) { return Thrice::apply(x.exp()); }, x_, v_);
  EXPECT_NE(r.nested_because, "");
  EXPECT_TRUE(close(r.second, 3 * x_.exp() * v_ * v_));
}

TEST_F(GivenUp, EvenIfTheFunctionCatchesTheError) {
  auto f = [](const Tensor& x) {
    try {
      return x.softmax(1);
    } catch (const std::exception&) {
      return x * 0;
    }
  };
  const auto r = second_derivative(f, x_, v_);
  EXPECT_THAT(r.nested_because, HasSubstr("_softmax"));
  EXPECT_TRUE(close(r.value, x_.softmax(1)));
}

TEST_F(GivenUp, ButErrorsOfTheFunctionArriveAsTheyAre) {
  int calls = 0;
  auto f = [&](const Tensor& x) -> Tensor {
    ++calls;
    x.exp();
    throw std::out_of_range("mine");
  };
  EXPECT_THROW(second_derivative(f, x_, v_), std::out_of_range);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(nothing_is_open());
}

TEST_F(GivenUp, OrNotDrawsRandomNumbersOnce) {
  for (bool has_rules : {true, false}) {
    auto f = [&](const Tensor& x) {
      Tensor y = at::dropout(x.exp(), 0.5, true) * at::rand_like(x);
      return has_rules ? y.sin() : y.softmax(1);
    };
    torch::manual_seed(3);
    const Tensor plain = f(x_), next = at::rand({2});
    torch::manual_seed(3);
    const auto r = second_derivative(f, x_, v_);
    EXPECT_EQ(r.nested_because.empty(), has_rules);
    EXPECT_TRUE(close(r.value, plain));
    EXPECT_TRUE(at::equal(at::rand({2}), next));
    torch::manual_seed(3);
    EXPECT_TRUE(close(r.second, nested(f)));
  }
}

TEST_F(GivenUp, WhereAnotherLevelOrALayerIsAround) {
  auto f = [](const Tensor& x) { return x.exp() * x; };
  auto second = [&](const Tensor& x) { return second_derivative(f, x, v_).second; };
  const Tensor third = jvp(second, x_, v_).tangent;
  EXPECT_TRUE(close(third, (x_ + 3) * x_.exp() * v_ * v_ * v_));
  auto of_row = [&](const Tensor& row) { return second_derivative(f, row, at::ones_like(row)).second; };
  EXPECT_TRUE(close(vmap(of_row, x_), (x_ + 2) * x_.exp()));
  const DualLevel level;
  EXPECT_THAT(second_derivative(f, x_, v_).nested_because, HasSubstr("level"));
}

TEST_F(GivenUp, NotInOtherModes) {
  auto f = [](const Tensor& x) { return x.exp() * x; };
  const Tensor want = (x_ + 2) * x_.exp() * v_ * v_;
  {
    const c10::NoGradGuard no_grad;
    const auto r = second_derivative(f, x_.clone().requires_grad_(), v_);
    EXPECT_EQ(r.nested_because, "");
    EXPECT_FALSE(r.second.requires_grad());
    EXPECT_TRUE(close(r.second, want));
  }
  const c10::InferenceMode inference;
  const Tensor there = x_ + 0;
  const auto r = second_derivative(f, there, v_);
  EXPECT_EQ(r.nested_because, "");
  EXPECT_TRUE(close(r.second, want));
}

// A thread of the function's own works outside the pass; what it makes of a tensor with derivatives is noticed.
TEST_F(GivenUp, AtATensorOfAnotherThread) {
  auto f = [](const Tensor& x) {
    Tensor y;
    std::thread worker([&] { y = x.exp(); });
    worker.join();
    return y * 2;
  };
  const auto r = second_derivative(f, x_, v_);
  EXPECT_NE(r.nested_because, "");
  EXPECT_TRUE(close(r.second, nested(f)));
}

TEST_F(GivenUp, NeverForNonsenseWhichIsRefused) {
  auto f = [](const Tensor& x) { return x.exp(); };
  EXPECT_THAT(error_of([&] { second_derivative(f, at::ones({2}, at::kLong), at::ones({2}, at::kLong)); }),
              HasSubstr("second_derivative: the inputs must be floating point or complex tensors"));
  EXPECT_THAT(error_of([&] { second_derivative(f, Tensor(), v_); }),
              HasSubstr("input 0 is an undefined tensor"));
  EXPECT_THAT(error_of([&] { second_derivative(f, x_, at::ones({2})); }), HasSubstr("direction 0 is a tensor"));
  EXPECT_THAT(error_of([&] { second_derivative(Map(), x_, v_); }), HasSubstr("empty function"));
  EXPECT_THAT(
      error_of([&] { second_derivative([](const Tensors&) { return Tensors{}; }, Tensors{x_}, Tensors{v_}); }),
      HasSubstr("empty list"));
  EXPECT_THAT(error_of([&] { second_derivative([](const Tensors& t) { return t; }, Tensors{x_}, Tensors{}); }),
              HasSubstr("1 inputs but 0 directions"));
}

}  // namespace
}  // namespace overdrive::forward_ad
