// Numbers that are arguments of a captured function (overdrive::Number): values of the program, whose bits are
// eager's in every call. What looks at a number in another way makes a constant of it, guarded by its value.
#include "replay/captured.h"
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

double annealed(int i) { return 0.05 + 0.013 * i; }

// Calls of a step beside calls of its function with plain numbers. Both begin with the same parameter.
struct Numbers {
  at::Tensor eager = torch::linspace(-1, 1, 12).reshape({3, 4}).requires_grad_();
  at::Tensor captured = eager.detach().clone().requires_grad_();

  // `function` takes the parameter, an input and numbers. Says where the first difference is.
  template <typename F, typename Step>
  std::string run(F function, Step& step, int calls, const std::function<std::vector<double>(int)>& numbers) {
    for (int i = 0; i < calls; ++i) {
      const at::Tensor x = batch_of(i, {3, 4}, {1})[0];
      const std::vector<double> given = numbers(i);
      at::Tensor expected, result;
      if constexpr (std::is_invocable_v<F, at::Tensor, at::Tensor, Number, Number>) {
        expected = function(eager, x, given[0], given[1]).detach();
        result = step(x, given[0], given[1]);
      } else {
        expected = function(eager, x, given[0]).detach();
        result = step(x, given[0]);
      }
      if (!same_bits(expected, result)) return c10::str("call ", i, ": the result differs");
      if (!same_bits(eager, captured)) return c10::str("call ", i, ": the parameter differs");
      if (!same_bits(eager.grad(), captured.grad())) return c10::str("call ", i, ": the gradient differs");
    }
    return "";
  }
};

std::function<std::vector<double>(int)> one(double (*number)(int)) {
  return [number](int i) { return std::vector<double>{number(i)}; };
}

at::Tensor weighed_loss(const at::Tensor& p, const at::Tensor& x, const Number& beta) {
  p.mutable_grad() = at::Tensor();
  const at::Tensor loss = (x * p).square().mean() * (1 - beta) + beta * p.exp().mean();
  loss.backward();
  return loss;
}

TEST(CaptureNumbers, AnAnnealedWeightIsAValue) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number beta) { return weighed_loss(both.captured, x, beta); });
  EXPECT_EQ(both.run(weighed_loss, step, 40, one(annealed)), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 33) << step.explain();
  EXPECT_EQ(step.refusal(), "");
  EXPECT_NE(step.explain().find("numbers of the call are values of the program"), std::string::npos);
}

// Without an optimizer: a rate that is an argument is no unseen number. Without the argument, it is.
at::Tensor by_hand(const at::Tensor& p, const at::Tensor& x, const Number& rate) {
  p.mutable_grad() = at::Tensor();
  const at::Tensor loss = (x * p).square().mean();
  loss.backward();
  const torch::NoGradGuard no_grad;
  p.mul_(1 - rate * 0.1).add_(p.grad(), -rate);
  return loss;
}

TEST(CaptureNumbers, ALearningRateIsAnArgument) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number rate) { return by_hand(both.captured, x, rate); });
  EXPECT_EQ(both.run(by_hand, step, 40, one(annealed)), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 33) << step.explain();
  double plain = 0.1;
  auto unseen = capture([&](at::Tensor x) { return by_hand(both.captured, x, plain); });
  for (int i = 0; i < 6; ++i) unseen(torch::ones({3, 4}));
  EXPECT_NE(unseen.refusal().find("by a number"), std::string::npos) << unseen.refusal();
}

TEST(CaptureNumbers, ANumberIsWrittenIntoAnOptimizersOptions) {
  std::vector<at::Tensor> weights;
  std::vector<std::string> explained;
  for (const bool is_captured : {false, true}) {
    const at::Tensor w = torch::ones({4}).requires_grad_();
    torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(0.5).momentum(0.9));
    auto& rate = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr();
    const auto function = [&](at::Tensor x, Number lr) {
      optimizer.zero_grad();
      (w * x).square().sum().backward();
      (lr / 2).write_to(rate);
      optimizer.step();
    };
    auto step = capture(function, {.optimizer = &optimizer});
    for (int i = 0; i < 20; ++i) {
      const at::Tensor x = torch::arange(4) * 0.1 + i * 0.01;
      is_captured ? step(x, annealed(i)) : function(x, annealed(i));
      EXPECT_EQ(rate, annealed(i) / 2);
    }
    if (is_captured) {
      EXPECT_GE(step.stats().replayed, 13u) << step.explain();
    }
    weights.push_back(w.detach());
  }
  EXPECT_TRUE(same_bits(weights[0], weights[1]));
}

// The number in an optimizer's operator, its negative rate, has the argument's values by chance in all recorded
// calls.
TEST(CaptureNumbers, AnOptimizersRateIsItsOwn) {
  const at::Tensor w = torch::ones({4}).requires_grad_();
  torch::optim::SGD optimizer({w}, 0.5);
  auto step = capture(
      [&](at::Tensor x, Number n) {
        optimizer.zero_grad();
        (w * x * n).sum().backward();
        optimizer.step();
      },
      {.optimizer = &optimizer, .check_every = 5});
  at::Tensor expected = torch::ones({4});
  for (int i = 0; i < 20; ++i) {
    const double rate = i < 10 ? annealed(i) : 0.5;
    optimizer.param_groups()[0].options().set_lr(rate);
    const at::Tensor x = torch::arange(4) * 0.1;
    step(x, -annealed(i));
    expected = expected + (x * annealed(i)) * rate;
    EXPECT_TRUE(torch::allclose(w, expected)) << i;
  }
  EXPECT_GE(step.stats().replayed, 11) << step.explain();
}

at::Tensor two_ways(const at::Tensor& p, const at::Tensor& x, const Number& beta) {
  return weighed_loss(p, x, beta > 0.3 ? beta * beta : max(beta, 0.1) + 0.5);
}

TEST(CaptureNumbers, ABranchOnANumberIsAGuard) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number beta) { return two_ways(both.captured, x, beta); });
  EXPECT_EQ(both.run(two_ways, step, 60, one(annealed)), "") << step.explain();
  // Three ways: below 0.1, below 0.3, and above.
  EXPECT_GE(step.stats().replayed, 36) << step.explain();
  EXPECT_EQ(both.run(two_ways, step, 60, one([](int i) { return 0.05 + 0.0171 * (i * 7 % 40); })), "");
  EXPECT_GE(step.stats().replayed, 96) << step.explain();
}

TEST(CaptureNumbers, ANumberThatIsTheSameThenChanges) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number beta) { return weighed_loss(both.captured, x, beta); });
  const auto late = [](int i) { return i < 12 ? 0.25 : annealed(i); };
  EXPECT_EQ(both.run(weighed_loss, step, 12, one(late)), "");
  EXPECT_EQ(step.stats().replayed, 8) << step.explain();
  EXPECT_EQ(both.run(weighed_loss, step, 40, one(late)), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 8 + 8 + 23) << step.explain();
}

at::Tensor of_two(const at::Tensor& p, const at::Tensor& x, const Number& a, const Number& b) {
  return weighed_loss(p, x * a, b) + (p * b).sum().detach();
}

TEST(CaptureNumbers, TwoNumbersThatSwap) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number a, Number b) { return of_two(both.captured, x, a, b); });
  const auto swapped = [](int i) { return i % 2 ? std::vector{0.3, 0.7} : std::vector{0.7, 0.3}; };
  EXPECT_EQ(both.run(of_two, step, 40, swapped), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 26) << step.explain();
  // Each recording has the numbers of the one before in the other order.
  const auto turning = [](int i) {
    const double a = annealed(i / 2), b = 2 * annealed(i / 2);
    return i % 2 ? std::vector{a, b} : std::vector{b, a};
  };
  EXPECT_EQ(both.run(of_two, step, 40, turning), "") << step.explain();
}

// Equal in the recorded calls, by chance or always; one of them changes alone later.
TEST(CaptureNumbers, TwoNumbersThatAreEqual) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number a, Number b) { return of_two(both.captured, x, a, b); });
  const auto equal = [](int i) { return std::vector{annealed(i), i < 20 ? annealed(i) : annealed(3 * i)}; };
  EXPECT_EQ(both.run(of_two, step, 20, equal), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 13) << step.explain();
  EXPECT_EQ(both.run(of_two, step, 40, equal), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 13 + 13) << step.explain();
}

TEST(CaptureNumbers, ASizeIsAConstantAndEachValueIsRecorded) {
  Numbers both;
  const auto sized = [&](const at::Tensor& p, const at::Tensor& x, const Number& n) {
    return (p * x).narrow(0, 0, static_cast<int64_t>(n.value())).sum();
  };
  auto step = capture([&](at::Tensor x, Number n) { return sized(both.captured, x, n); });
  EXPECT_EQ(both.run(sized, step, 60, one([](int i) { return i % 7 < 4 ? 2. : 3.; })), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 40) << step.explain();
  EXPECT_NE(step.explain().find("value() of it is called"), std::string::npos) << step.explain();
  EXPECT_EQ(step.refusal(), "");
}

TEST(CaptureNumbers, AHiddenNumberThatChangesInEachCallIsToldByName) {
  Numbers both;
  const auto hidden = [](const at::Tensor& p, const at::Tensor& x, const Number& n) {
    return weighed_loss(p, x, n.value());
  };
  auto step = capture([&](at::Tensor x, Number n) { return hidden(both.captured, x, n); });
  EXPECT_EQ(both.run(hidden, step, 20, one(annealed)), "");
  EXPECT_NE(step.refusal().find("number 1 of the call is a constant, since value() of it is called"),
            std::string::npos)
      << step.refusal();
}

// Places of operators that do something else with some numbers: each value has a recording of its own.
TEST(CaptureNumbers, APlaceThatIsNotFound) {
  Numbers both;
  const auto power = [](const at::Tensor& p, const at::Tensor& x, const Number& n) {
    return weighed_loss(p, x.abs().pow(n), 0.5);
  };
  auto step = capture([&](at::Tensor x, Number n) { return power(both.captured, x, n); });
  EXPECT_EQ(both.run(power, step, 40, one(annealed)), "") << step.explain();
  EXPECT_EQ(step.stats().replayed, 0);
  EXPECT_NE(step.refusal(), "");
  // And a value that comes again is replayed.
  EXPECT_EQ(both.run(power, step, 20, one([](int) { return 3.; })), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 15) << step.explain();
}

TEST(CaptureNumbers, ZeroAndOneHaveProgramsOfTheirOwn) {
  Numbers both;
  auto step = capture([&](at::Tensor x, Number beta) { return weighed_loss(both.captured, x, beta); });
  EXPECT_EQ(both.run(weighed_loss, step, 60, one([](int i) { return i % 3   ? annealed(i)
                                                                    : i % 2 ? 1.
                                                                            : 0.; })),
            "")
      << step.explain();
  EXPECT_GE(step.stats().replayed, 42) << step.explain();
}

TEST(CaptureNumbers, ANumberThatIsKeptIsAConstant) {
  Numbers both;
  std::vector<Number> kept;
  auto step = capture([&](at::Tensor x, Number beta) {
    kept.push_back(beta);
    return weighed_loss(both.captured, x, beta);
  });
  EXPECT_EQ(both.run(weighed_loss, step, 20, one(annealed)), "");
  EXPECT_NE(step.explain().find("the function keeps it after the call"), std::string::npos) << step.explain();
  EXPECT_EQ(kept.size(), 20);
}

TEST(CaptureNumbers, ComputesAsADoubleDoes) {
  const double a = 0.3, b = 1.7;
  const auto same = [](const Number& number, double expected) { return number.value() == expected; };
  const Number x = a, y = b;
  EXPECT_TRUE(same(x + y, a + b) && same(x - 2, a - 2) && same(3 * y, 3 * b) && same(1 / x, 1 / a) &&
              same(-x, -a));
  EXPECT_TRUE(same(pow(x, y), std::pow(a, b)) && same(exp(x), std::exp(a)) && same(log(y), std::log(b)));
  EXPECT_TRUE(same(sqrt(x), std::sqrt(a)) && same(min(x, y), a) && same(max(x, y), b));
  EXPECT_TRUE(x < y && y >= x && x != y && x == 0.3 && x && !Number(0));
  EXPECT_FALSE(Number(std::nan("")) < x || Number(std::nan("")) >= x);
}

// Everything that is made of a number, in turn with an operator that takes it.
TEST(CaptureNumbers, WhatIsMadeOfANumberIsAValue) {
  Numbers both;
  const auto many = [](const at::Tensor& p, const at::Tensor& x, const Number& n) {
    const at::Tensor mixed = torch::lerp(x, p, sqrt(n)) / (exp(n) + 2) - pow(n, 3) + x.clamp_max(-log(n));
    return mixed.masked_fill(x > n, -n).add(x, n / 7).sum();
  };
  auto step = capture([&](at::Tensor x, Number n) { return many(both.captured, x, n); });
  EXPECT_EQ(both.run(many, step, 30, one(annealed)), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 23) << step.explain();
}

TEST(CaptureNumbers, ANumberOfAPartIsAConstantOfItsRecording) {
  Numbers both;
  auto part = captured([&](at::Tensor x, Number beta) { return (x * both.captured).tanh() * beta; });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = batch_of(i, {3, 4}, {1})[0];
    const double beta = i % 2 ? 0.3 : 0.7;
    for (const at::Tensor& each : {both.eager, both.captured}) each.mutable_grad() = at::Tensor();
    ((x * both.eager).tanh() * beta).sum().backward();
    part(x, beta).sum().backward();
    ASSERT_TRUE(same_bits(both.eager.grad(), both.captured.grad())) << i;
  }
  EXPECT_GE(part.stats().backwards, 28) << part.explain();
}

// A graph whose form no recording has runs the function once more, with the numbers of its call.
TEST(CaptureNumbers, ThePartRunsAgainWithItsOwnNumber) {
  const at::Tensor w = torch::ones({4}).requires_grad_();
  auto part =
      captured([&](at::Tensor x, Number n) { return std::tuple((w * x * n).sin(), (w * x).cos() * n); });
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = torch::arange(4) * 0.1;
    w.mutable_grad() = at::Tensor();
    auto [a, b] = part(x, 0.3);
    auto [c, d] = part(x, 0.7);
    (i < 15 ? a + b + c + d : a + c).sum().backward();
    const at::Tensor v = w.detach().requires_grad_();
    at::Tensor sum = (v * x * 0.3).sin() + (v * x * 0.7).sin();
    if (i < 15) sum = sum + (v * x).cos() * 0.3 + (v * x).cos() * 0.7;
    sum.sum().backward();
    ASSERT_TRUE(torch::allclose(w.grad(), v.grad())) << i;
  }
  EXPECT_GT(part.stats().again + part.stats().backwards, 10) << part.explain();
}

TEST(CaptureNumbers, AStepInsideAnotherSeesTheOutersNumber) {
  Numbers both;
  auto inner = captured([&](at::Tensor x, Number n) { return x * n; });
  auto step = capture([&](at::Tensor x, Number n) { return inner(x, n * 2).sum() + both.captured.detach(); });
  const auto function = [](const at::Tensor& p, const at::Tensor& x, const Number& n) {
    return (x * (n * 2)).sum() + p.detach();
  };
  EXPECT_EQ(both.run(function, step, 30, one(annealed)), "") << step.explain();
  EXPECT_GE(step.stats().replayed, 20) << step.explain();
}

TEST(CaptureNumbers, AStepWithNumbersIsNotSavedAndIsCalledWithThem) {
  auto step = capture([](at::Tensor x, Number n) { return x * n; });
  for (int i = 0; i < 8; ++i) step(torch::ones({2}), 0.5);
  EXPECT_NE(error_of([&] { step.save("/tmp/none.od"); }).find("overdrive::Number cannot be saved"),
            std::string::npos);
  EXPECT_NE(error_of([&] { step.call({torch::ones({2})}); }).find("was called without them"),
            std::string::npos);
  step.reset();
  EXPECT_TRUE(same_bits(step(torch::ones({2}), 0.25), torch::full({2}, 0.25)));
}

}  // namespace
}  // namespace overdrive::test
