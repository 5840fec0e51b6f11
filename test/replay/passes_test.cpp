// The passes over a recorded step: what each of them leaves out, what none of them may, and that the bits are
// eager's with them and without.
#include "test/replay/parts_fixture.h"

#include <regex>

namespace overdrive::test {
namespace {

struct Counts {
  int twins = 0;
  int once = 0;
  int unneeded = 0;
  bool operator==(const Counts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.twins << " twins, " << counts.once << " once, " << counts.unneeded << " unneeded";
}

Counts counts_of(const std::string& text) {
  std::smatch found;
  const std::regex line(
      "passes: ([0-9]+) steps have the result of another, ([0-9]+) are made once, ([0-9]+) are not needed");
  if (!std::regex_search(text, found, line)) return {-1, -1, -1};
  return {std::stoi(found[1]), std::stoi(found[2]), std::stoi(found[3])};
}

// A function of two inputs and a tensor from outside, which it may change.
using TriedStep = std::function<Tensors(const at::Tensor& x, const at::Tensor& y, const at::Tensor& kept)>;

// Runs the function eagerly and captured, on other data in each call. Everything has to be the same.
Counts counts_of(const TriedStep& function, bool passes = true) {
  const at::Tensor eager_state = torch::ones({3, 4}), captured_state = torch::ones({3, 4});
  CapturedStep step([&](const Tensors& in) { return function(in[0], in[1], captured_state); },
                    {.constant_numbers = true, .constant_modes = true, .check_every = 3, .passes = passes});
  for (int i = 0; i < 12; ++i) {
    const Tensors batch = batch_of(i, {3, 4}, {3, 4});
    torch::manual_seed(i);
    const Tensors expected = function(batch[0].clone(), batch[1].clone(), eager_state);
    const at::Tensor drawn = torch::rand({1});
    torch::manual_seed(i);
    const Tensors results = step.call({batch[0].clone(), batch[1].clone()});
    EXPECT_TRUE(same_bits(drawn, torch::rand({1}))) << "other random numbers in call " << i;
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_TRUE(same_bits(expected[k].detach(), results[k])) << "result " << k << " of call " << i;
      for (size_t m = 0; m < k; ++m) EXPECT_FALSE(results[k].is_alias_of(results[m]));
    }
    EXPECT_TRUE(same_bits(eager_state, captured_state)) << "call " << i;
  }
  EXPECT_GT(replays(step.stats()), 3u) << step.explain();
  return counts_of(step.explain());
}

TEST(Twins, TheSameStepTwiceIsOneStep) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) { return Tensors{(x * -2 + y) * (x * -2 + y).tanh()}; }),
            (Counts{2, 0, 0}));
}

TEST(Twins, TheSameStepOfAViewOfTheSameElements) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) {
              return Tensors{x.t().exp() + y.t() + x.detach().t().exp().narrow(0, 0, 4)};
            }),
            (Counts{1, 0, 0}));
}

TEST(Twins, OtherNumbersOrOtherElementsAreOtherSteps) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) {
              return Tensors{x * 2 + x * 3, x.narrow(0, 0, 2).exp() + x.narrow(0, 1, 2).exp(),
                             y.sum(0, true) + y.sum(1, true), x.to(torch::kDouble).exp() + x.exp()};
            }),
            (Counts{}));
}

TEST(Twins, NotWhereSomebodyWritesInBetween) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto& kept) {
              const at::Tensor before = kept * 2;
              kept.add_(x);
              return Tensors{before + kept * 2};
            }),
            (Counts{}));
}

TEST(Twins, NotWhereSomebodyWritesThroughAnotherStorage) {
  std::vector<float> numbers(12, 1);
  const at::Tensor a = torch::from_blob(numbers.data(), {3, 4}), b = torch::from_blob(numbers.data(), {3, 4});
  CapturedStep step(
      [&](const Tensors& in) {
        const at::Tensor before = a.exp();
        // Nothing, in the calls that are compared.
        b.mul_(in[0]);
        return Tensors{before + a.exp()};
      },
      {.constant_numbers = true});
  for (int i = 0; i < 10; ++i) {
    const at::Tensor factor = torch::full({3, 4}, i < 6 ? 1. : 0.5), start = a.clone();
    const at::Tensor result = step.call({factor})[0];
    EXPECT_TRUE(same_bits(result, start.exp() + (start * factor).exp())) << i << "\n" << step.explain();
    if (i == 5) {
      EXPECT_EQ(counts_of(step.explain()), Counts{}) << step.explain();
    }
  }
}

TEST(Twins, NotWhereTheResultIsWritten) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) {
              const at::Tensor first = x * 2, second = x * 2, third = y * 2, fourth = y * 2;
              first.add_(1);
              fourth.add_(1);
              return Tensors{first * second * third * fourth};
            }),
            (Counts{}));
}

TEST(Twins, WhereTheFirstResultIsWrittenAfterTheLastUseOfTheSecond) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto&) {
              const at::Tensor first = x * 2;
              const at::Tensor sum = (x * 2).sum();
              first.add_(sum);
              return Tensors{first * 1.5};
            }),
            (Counts{1, 0, 0}));
}

TEST(Twins, RandomNumbersAreDrawnTwice) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto&) {
              return Tensors{torch::rand_like(x) - torch::rand_like(x),
                             torch::dropout(x, 0.5, true) + torch::dropout(x, 0.5, true)};
            }),
            (Counts{}));
}

TEST(Twins, ResultsAreTensorsOfTheirOwn) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto&) { return Tensors{x * 2, x * 2}; }), (Counts{}));
}

TEST(Twins, OfAStepThatMayThrow) {
  const TriedStep twice = [](auto& x, auto&, auto&) {
    const at::Tensor rows = (x.select(1, 0) * 0).to(torch::kLong);
    return Tensors{x.index_select(0, rows) * x.index_select(0, rows)};
  };
  EXPECT_EQ(counts_of(twice), (Counts{1, 0, 0}));
}

TEST(Twins, AnAnswerIsAskedAgain) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) {
              const bool both = (x > -9).all().template item<bool>() && (x > -9).all().template item<bool>();
              return Tensors{both ? x * 2 : y};
            }),
            (Counts{2, 0, 0}));
}

TEST(Unneeded, AResultThatNobodyReads) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) {
              (void)(x * y).exp().sum();
              return Tensors{x + y};
            }),
            (Counts{0, 0, 3}));
}

TEST(Unneeded, AResultOfWhichOnlyTheSizesAreAsked) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) { return Tensors{torch::ones_like((x * y).sum(0)) + x}; }),
            (Counts{0, 1, 2}));
}

TEST(Unneeded, WritesToWhatNobodyReads) {
  EXPECT_EQ(counts_of([](auto& x, auto& y, auto&) {
              at::Tensor passing = x * y;
              passing.add_(1).mul_(2);
              return Tensors{x + y};
            }),
            (Counts{0, 0, 3}));
}

TEST(Unneeded, NotWhatLivesOnOrDrawsOrThrows) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto& kept) {
              kept.mul_(0.5);
              (void)torch::rand({2});
              (void)x.index_select(0, (x.select(1, 0) * 0).to(torch::kLong));
              return Tensors{x * 2};
            }),
            (Counts{}));
}

// The index is out of range in the seventh call, and nobody reads what it finds.
TEST(Unneeded, AnErrorStaysAnError) {
  CapturedStep step(
      [](const Tensors& in) {
        (void)in[0].index_select(0, in[1]);
        return Tensors{in[0] * 2};
      },
      {});
  for (int i = 0; i < 9; ++i) {
    const Tensors in{torch::full({3}, 1. * i), torch::tensor({i == 6 ? 5 : i % 3})};
    const std::string error = error_of([&] { step.call(in); });
    EXPECT_EQ(error.find("out of range") != error.npos, i == 6) << error;
  }
  EXPECT_EQ(step.stats().undone, 1u) << step.explain();
}

TEST(Constants, AreMadeOnce) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto&) {
              const at::Tensor table = torch::arange(4) * torch::full({4}, 0.5);
              return Tensors{x * table + torch::ones({3, 1}).expand({3, 4}).cumsum(0)};
            }),
            (Counts{0, 5, 0}));
}

TEST(Constants, NotWhereTheyAreWrittenOrLiveOn) {
  EXPECT_EQ(counts_of([](auto& x, auto&, auto&) {
              at::Tensor sum = torch::zeros({3, 4});
              sum.add_(x);
              return Tensors{sum * 2, torch::ones({2})};
            }),
            (Counts{}));
}

TEST(Constants, NotOfInputsThatWereTheSame) {
  const at::Tensor lengths = torch::tensor({1., 2.});
  CapturedStep step([](const Tensors& in) { return Tensors{in[0] * (in[1] * 2).sum()}; }, {});
  for (int i = 0; i < 10; ++i) {
    const at::Tensor given = i < 6 ? lengths : lengths + 1, x = torch::full({2}, 1. * i);
    EXPECT_TRUE(same_bits(step.call({x, given})[0], x * (given * 2).sum())) << i;
  }
}

// The numbers are the same while it is recorded, and then another one.
TEST(Passes, LeaveTheNumbersOfAnOptimizerAlone) {
  SideBySide both([] {
    const at::Tensor p = torch::ones({4}).requires_grad_();
    Training training{.model = nullptr,
                      .optimizer = std::make_shared<torch::optim::SGD>(
                          Tensors{p}, torch::optim::SGDOptions(0.5).weight_decay(0.5))};
    auto* raw = training.optimizer.get();
    training.state = {p};
    training.step = [=](const Tensors& in) {
      raw->zero_grad();
      const at::Tensor loss = (p * in[0]).sum();
      loss.backward();
      const at::Tensor decayed = p.grad().add(p.detach(), 0.5);
      raw->step();
      return loss + decayed.sum();
    };
    training.inputs = [](int i) { return batch_of(i, {4}, {4}); };
    return training;
  });
  const auto changed = [](Training& training, int i) {
    auto& options = static_cast<torch::optim::SGDOptions&>(training.optimizer->param_groups()[0].options());
    options.weight_decay(i < 5 ? 0.5 : 0.25);
    options.lr(i < 7 ? 0.5 : 0.1);
  };
  EXPECT_EQ(both.run(12, changed), "") << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 3u) << both.step().explain();
}

TEST(Passes, CanBeTurnedOff) {
  const TriedStep step = [](auto& x, auto&, auto&) {
    (void)x.exp();
    return Tensors{x * 2 + (x * 2).tanh() + torch::ones({4})};
  };
  EXPECT_EQ(counts_of(step), (Counts{1, 1, 1}));
  EXPECT_EQ(counts_of(step, /*passes=*/false), (Counts{}));
}

// What the forward has made is what the backward would make again, and two backwards read it. In between
// another call of the part runs.
PartProgram part_with_twins() {
  torch::nn::Sequential net(torch::nn::Linear(4, 4));
  return {.model = net.ptr(),
          .function =
              [net](const Tensors& in) mutable {
                const at::Tensor x = net->forward(in[0]), factor = torch::ones({4}) * 2;
                // The backward of addcmul makes both products, which the forward has made for other readers.
                const at::Tensor scaled = torch::addcmul(x, x.detach() * 2, x, 0.5) * factor;
                return Tensors{scaled.tanh() * (x.detach() * 2), x.pow(3)};
              },
          .step =
              [net](const PartFunction& part, int i) mutable {
                net->zero_grad();
                const Tensors batch = batch_of(i, {3, 4}, {3, 4});
                const Tensors first = part({batch[0]}), second = part({batch[1]});
                (first[0].sum() + first[1].sum()).backward({}, true);
                (second[0].sum() + second[1].sum()).backward();
                (first[0].square().sum() + first[1].sum()).backward();
                return Tensors{first[0].detach(), second[1].detach()};
              }};
}

TEST(Passes, KeepForABackwardWhatItReadsOfTheForward) {
  PartBesideEager both(part_with_twins, {.constant_numbers = true});
  EXPECT_EQ(both.run(16), "") << both.part().explain();
  EXPECT_GT(both.part().stats().backwards, 9u) << both.part().explain();
  const Counts counts = counts_of(both.part().explain());
  EXPECT_GE(counts.twins, 1) << both.part().explain();
  EXPECT_GE(counts.once, 2) << both.part().explain();
}

}  // namespace
}  // namespace overdrive::test
