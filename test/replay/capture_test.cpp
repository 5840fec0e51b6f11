// A captured step does what the function does: parameters, results, gradients, version counters and random
// numbers.
#include "test/replay/replay_fixture.h"
#include "test/support/engines.h"

#include <ATen/record_function.h>

namespace overdrive::test {
namespace {

TEST(Capture, TrainsAsEagerDoes) {
  SideBySide both([] { return small_mlp(); });
  EXPECT_EQ(both.run(200), "") << both.step().explain();
  EXPECT_EQ(both.step().refusal(), "");
  EXPECT_GT(replays(both.step().stats()), 190u) << both.step().explain();
}

// The engine computes many nodes itself, without the dispatcher, but not under a recording.
TEST(Capture, TrainsAsEagerDoesOnOverdrive) {
  on<Overdrive>([] {
    SideBySide both([] { return small_mlp(); });
    EXPECT_EQ(both.run(60), "") << both.step().explain();
    EXPECT_GT(replays(both.step().stats()), 50u) << both.step().explain();
    SideBySide in_place([] { return small_mlp(sgd(), false); });
    EXPECT_EQ(in_place.run(60), "") << in_place.step().explain();
    EXPECT_GT(replays(in_place.step().stats()), 50u) << in_place.step().explain();
  });
}

TEST(Capture, ReturnsFreshTensors) {
  SideBySide both([] { return small_mlp(); });
  Tensors kept, copies;
  for (int i = 0; i < 10; ++i) {
    kept.push_back(both.step().call(both.captured().inputs(i)).at(0));
    copies.push_back(kept.back().clone());
    EXPECT_FALSE(kept.back().requires_grad());
  }
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(same_bits(kept[i], copies[i]));
  EXPECT_FALSE(same_bits(kept[8], kept[9]));
}

// A profiler sees one event, with an event for each operator inside of it, direct or not.
TEST(Capture, AReplayIsAnEventWithItsOperatorsInside) {
  SideBySide both([] { return small_mlp(); });
  ASSERT_EQ(both.run(10), "");
  static std::vector<std::string> seen;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& event) -> std::unique_ptr<at::ObserverContext> {
            seen.emplace_back(event.name());
            return nullptr;
          },
          [](const at::RecordFunction& event, at::ObserverContext*) {
            if (std::string_view(event.name()) == "overdrive::replay") seen.emplace_back("the end");
          })
          .scopes({at::RecordScope::FUNCTION}));
  both.step().call(both.captured().inputs(0));
  at::removeCallback(handle);
  const auto begin = std::find(seen.begin(), seen.end(), "overdrive::replay");
  const auto end = std::find(begin, seen.end(), "the end");
  ASSERT_NE(end, seen.end());
  EXPECT_GT(std::count(begin, end, "aten::addmm"), 1);
  EXPECT_GT(std::count(begin, end, "aten::mse_loss_backward"), 0);
  EXPECT_GT(std::count(begin, end, "aten::add_"), 1);
}

TEST(Capture, GradientsInPlace) {
  SideBySide both([] { return small_mlp(sgd(), false); });
  EXPECT_EQ(both.run(40), "") << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 30u);
}

TEST(Capture, GradientsThatTheProgramTakesAwayBetweenCalls) {
  SideBySide both([] {
    Training training = small_mlp();
    auto* optimizer = training.optimizer.get();
    auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
    training.step = [optimizer, net](const Tensors& inputs) {
      at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
      loss.backward();
      optimizer->step();
      return loss;
    };
    return training;
  });
  EXPECT_EQ(both.run(20, [](Training& training, int) { training.optimizer->zero_grad(true); }), "");
  EXPECT_GT(replays(both.step().stats()), 10u) << both.step().explain();
  // The program stops doing so: gradients are added up from now on.
  EXPECT_EQ(both.run(20), "");
  EXPECT_GT(replays(both.step().stats()), 22u) << both.step().explain();
}

TEST(Capture, AccumulatesOverSmallBatches) {
  SideBySide both([] {
    Training training = small_mlp();
    auto* optimizer = training.optimizer.get();
    auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
    training.step = [optimizer, net](const Tensors& inputs) {
      optimizer->zero_grad();
      at::Tensor sum;
      for (int i = 0; i < 3; ++i) {
        at::Tensor loss = torch::mse_loss(net->forward(inputs[0] * (i + 1)), inputs[1]) / 3;
        loss.backward();
        sum = sum.defined() ? sum + loss.detach() : loss.detach();
      }
      optimizer->step();
      return sum;
    };
    return training;
  });
  EXPECT_EQ(both.run(60), "");
  EXPECT_GT(replays(both.step().stats()), 50u) << both.step().explain();
}

// The optimizer's update and zero_grad() are the program's, after so many calls.
Training accumulation() {
  Training training = small_mlp();
  training.updates_between = true;
  auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
  training.step = [net](const Tensors& inputs) {
    at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]) / 4;
    loss.backward();
    return loss;
  };
  return training;
}

TEST(Capture, AccumulatesOverCalls) {
  for (const int calls : {2, 3, 4, 9}) {
    for (const bool set_to_none : {true, false}) {
      SideBySide both(accumulation);
      const auto update = [=](Training& training, int i) {
        if (i % calls > 0) return;
        training.optimizer->step();
        training.optimizer->zero_grad(set_to_none);
      };
      EXPECT_EQ(both.run(100, update), "") << calls << " calls\n" << both.step().explain();
      EXPECT_GT(replays(both.step().stats()), 55u) << calls << " calls\n" << both.step().explain();
    }
  }
}

TEST(Capture, ASaveOfAStepWhoseGradientsComeAndGoSaysWhatToWrite) {
  SideBySide both(accumulation);
  const auto update = [](Training& training, int i) {
    if (i % 3 == 0) training.optimizer->zero_grad();
  };
  EXPECT_EQ(both.run(60, update), "");
  both.captured().optimizer->zero_grad();
  EXPECT_THAT(error_of([&] { both.step().save("/dev/null"); }), testing::HasSubstr("zero_grad(false)"));
}

// Over two calls for a while, then over three, and the last one of an epoch alone.
TEST(Capture, AccumulatesOverOtherNumbersOfCalls) {
  SideBySide both(accumulation);
  const auto update = [=](Training& training, int i) {
    if (i % (i < 50 ? 2 : 3) > 0 && i % 11 > 0) return;
    training.optimizer->step();
    training.optimizer->zero_grad();
  };
  EXPECT_EQ(both.run(140, update), "") << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 90u) << both.step().explain();
}

TEST(Capture, AccumulatesInAModelThatIsFrozenInTurns) {
  SideBySide both(accumulation);
  const auto update = [=](Training& training, int i) {
    if (i % 20 == 0) training.model->parameters()[0].requires_grad_(i % 40 == 0);
    if (i % 3 > 0) return;
    training.optimizer->step();
    training.optimizer->zero_grad();
  };
  EXPECT_EQ(both.run(160, update), "") << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 60u) << both.step().explain();
}

// Who holds the gradients has another tensor in each call that adds to them.
TEST(Capture, AccumulatesGradientsThatSomebodyKeeps) {
  Tensors kept;
  SideBySide both(accumulation);
  const auto update = [&](Training& training, int i) {
    if (i % 3 == 1) kept.push_back(training.model->parameters()[0].grad());
    if (i % 3 > 0) return;
    training.optimizer->step();
    training.optimizer->zero_grad();
  };
  EXPECT_EQ(both.run(60, update), "") << both.step().explain();
}

TEST(Capture, ChangesAnInputInPlace) {
  auto step = capture([](at::Tensor x) {
    x.mul_(2);
    return x.sum();
  });
  for (int i = 0; i < 10; ++i) {
    at::Tensor x = torch::full({2, 3}, i, torch::kFloat), expected = x * 2;
    const auto version = x._version();
    EXPECT_TRUE(same_bits(step(x), expected.sum()));
    EXPECT_TRUE(same_bits(x, expected));
    EXPECT_EQ(x._version(), version + 1);
  }
  EXPECT_GT(replays(step.stats()), 4u) << step.explain();
}

TEST(Capture, ReachesAnInputAlsoThroughTheTensorItself) {
  // A state that is given as an input in some calls: both names mean the same memory there.
  at::Tensor state = torch::ones({4});
  auto step = capture([&](at::Tensor x) {
    state.add_(1);
    return x.clone();
  });
  for (int i = 0; i < 8; ++i) {
    at::Tensor other = torch::full({4}, -i, torch::kFloat);
    EXPECT_TRUE(same_bits(step(other), other)) << i;
  }
  EXPECT_GT(replays(step.stats()), 2u) << step.explain();
  EXPECT_TRUE(same_bits(step(state), torch::full({4}, 10, torch::kFloat)));
  EXPECT_TRUE(same_bits(state, torch::full({4}, 10, torch::kFloat)));
}

TEST(Capture, NumbersInATensorThatTheProgramMakes) {
  SideBySide both([] {
    Training training = small_mlp();
    auto* optimizer = training.optimizer.get();
    auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
    training.step = [optimizer, net](const Tensors& inputs) {
      optimizer->zero_grad();
      at::Tensor weights = torch::tensor({0.5f, 1.f, 2.f, 4.f});
      at::Tensor loss = ((net->forward(inputs[0]) - inputs[1]) * weights).square().mean() + torch::ones({1})[0];
      loss.backward();
      optimizer->step();
      return loss;
    };
    return training;
  });
  EXPECT_EQ(both.run(30), "");
  EXPECT_GT(replays(both.step().stats()), 20u) << both.step().explain();
}

TEST(Capture, SeveralResults) {
  at::Tensor w = torch::ones({3});
  auto step = capture([&](const at::Tensor& x, at::Tensor y) { return std::tuple(x * w, y + w, x.t()); });
  for (int i = 0; i < 6; ++i) {
    at::Tensor x = torch::full({2, 3}, i, torch::kFloat), y = x + 1;
    auto [a, b, c] = step(x, y);
    EXPECT_TRUE(same_bits(a, x * w));
    EXPECT_TRUE(same_bits(b, y + w));
  }
  EXPECT_THAT(step.refusal(), testing::HasSubstr("return its clone()"));
  auto nothing = capture([&](std::vector<at::Tensor> list) { w.copy_(list[0]); });
  for (int i = 0; i < 6; ++i) {
    nothing({torch::full({3}, i, torch::kFloat)});
    EXPECT_EQ(w[0].item<float>(), static_cast<float>(i));
  }
  EXPECT_GT(replays(nothing.stats()), 1u) << nothing.explain();
}

TEST(Capture, ThrowsAsEagerDoesAndGoesOn) {
  at::Tensor table = torch::rand({5, 3}), count = torch::zeros({});
  const auto look_up = [&](at::Tensor index) {
    count.add_(1);
    return torch::embedding(table, index).sum();
  };
  auto step = capture(look_up);
  const at::Tensor good = torch::tensor({1, 4}), bad = torch::tensor({1, 7});
  for (int i = 0; i < 8; ++i) step(i % 2 ? good : good - 1);
  ASSERT_GT(replays(step.stats()), 3u) << step.explain();
  EXPECT_THROW(step(bad), c10::IndexError);
  EXPECT_EQ(step.stats().undone, 1u);
  // As eager leaves it: the count was changed before the error.
  EXPECT_EQ(count.item<float>(), 9);
  EXPECT_TRUE(same_bits(step(good), torch::embedding(table, good).sum()));
  EXPECT_EQ(count.item<float>(), 10);
}

TEST(Capture, ComparisonsThatComeOutOtherwise) {
  at::Tensor y = torch::ones({3}), count = torch::zeros({});
  const auto f = [&](at::Tensor x) {
    count.add_(1);
    return torch::equal(x, y) ? x + 1 : x * 2;
  };
  auto step = capture(f);
  for (int i = 0; i < 30; ++i) {
    at::Tensor x = i == 12 || i == 20 ? torch::zeros({3}) : torch::ones({3});
    EXPECT_TRUE(same_bits(step(x), torch::equal(x, y) ? x + 1 : x * 2)) << i;
    EXPECT_EQ(count.item<float>(), i + 1);
  }
  // The input was the same until then, so each such call is recorded and found to differ.
  EXPECT_EQ(step.stats().checked, 5u) << step.explain();
  EXPECT_EQ(replays(step.stats()), 18u);
}

}  // namespace
}  // namespace overdrive::test
