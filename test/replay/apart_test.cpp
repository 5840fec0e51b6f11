// overdrive::Apart: code of a captured step that runs in every call, once, in replays too.
#include "replay/apart.h"
#include "test/replay/parts_fixture.h"

namespace overdrive::test {
namespace {

using testing::HasSubstr;

// A small network whose loss goes through something that runs apart.
Training with_apart(std::shared_ptr<std::vector<double>> seen,
                    const std::function<at::Tensor(std::vector<double>&, at::Tensor)>& between) {
  Training training = small_mlp(adam());
  const auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
  auto apart =
      std::make_shared<Apart<at::Tensor(at::Tensor)>>([=](at::Tensor loss) { return between(*seen, loss); });
  training.step = [=, optimizer = training.optimizer](const Tensors& inputs) {
    optimizer->zero_grad();
    at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
    loss = loss * (*apart)(loss);
    loss.backward();
    optimizer->step();
    return loss;
  };
  return training;
}

struct Seen {
  std::vector<std::shared_ptr<std::vector<double>>> of_each;
  SideBySide::Make make(std::function<at::Tensor(std::vector<double>&, at::Tensor)> between) {
    return [this, between] {
      of_each.push_back(std::make_shared<std::vector<double>>());
      return with_apart(of_each.back(), between);
    };
  }
};

at::Tensor weigh(std::vector<double>& seen, const at::Tensor& loss) {
  seen.push_back(loss.item<double>());
  return torch::full({}, 1 + 0.1 * static_cast<double>(seen.size() % 3));
}

TEST(CaptureApart, RunsOnceInEachCallWithTheValuesOfTheCall) {
  for (const uint64_t check_every : {0, 5}) {
    Seen seen;
    SideBySide both(seen.make(weigh), {.check_every = check_every});
    EXPECT_EQ(both.run(30), "") << both.step().explain();
    EXPECT_EQ(*seen.of_each[0], *seen.of_each[1]);
    EXPECT_EQ(seen.of_each[1]->size(), 30u);
    EXPECT_GE(replays(both.step().stats()), check_every ? 20u : 25u) << both.step().refusal();
  }
}

TEST(CaptureApart, DrawsRandomNumbersAsInEager) {
  Seen seen;
  SideBySide both(seen.make([](std::vector<double>& all, const at::Tensor&) {
    at::Tensor drawn = torch::rand({});
    all.push_back(drawn.item<double>());
    return drawn;
  }),
                  {.check_every = 5});
  EXPECT_EQ(both.run(30), "") << both.step().explain();
  EXPECT_EQ(*seen.of_each[0], *seen.of_each[1]);
  EXPECT_GE(replays(both.step().stats()), 20u) << both.step().refusal();
}

TEST(CaptureApart, AThrowTakesTheReplayBackAndIsNotRepeated) {
  Seen seen;
  SideBySide both(seen.make([](std::vector<double>& all, const at::Tensor& loss) {
    at::Tensor weight = weigh(all, loss);
    TORCH_CHECK(all.size() % 7 != 0, "the seventh");
    return weight;
  }));
  EXPECT_EQ(both.run(30), "") << both.step().explain();
  EXPECT_EQ(*seen.of_each[0], *seen.of_each[1]);
  EXPECT_EQ(both.step().stats().undone, 4u);
}

TEST(CaptureApart, AThrowOfNoException) {
  Apart throws([count = 0](at::Tensor) mutable {
    if (++count == 8) throw 8;
  });
  auto step = capture([&](at::Tensor x) {
    throws(x);
    return x * 2;
  });
  for (int i = 1; i <= 12; ++i) {
    const at::Tensor x = torch::full({2}, i);
    if (i == 8) {
      EXPECT_THROW(step(x), int);
    } else {
      EXPECT_TRUE(same_bits(step(x), x * 2)) << i;
    }
  }
  EXPECT_EQ(step.stats().undone, 1u);
}

TEST(CaptureApart, OtherSizesMakeTheCallEager) {
  int calls = 0;
  Apart sized([&](at::Tensor x) { return torch::ones({++calls == 12 ? 2 : 1}) * x.sum(); });
  auto step = capture([&](at::Tensor x) { return sized(x) + 1; });
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(step(torch::full({3}, i)).numel(), i == 12 ? 2 : 1);
  EXPECT_EQ(calls, 20);
  EXPECT_EQ(step.stats().undone, 1u) << step.explain();
  EXPECT_EQ(replays(step.stats()), 15u) << step.explain();
}

TEST(CaptureApart, AFunctionWithoutCapturesNeedsNoObject) {
  auto step = capture(
      [](at::Tensor x) { return apart([](at::Tensor y) { return y + y.max().item<float>(); }, x) * 2; });
  for (int i = 0; i < 10; ++i) {
    const at::Tensor x = torch::arange(4.0) * i;
    EXPECT_TRUE(same_bits(step(x), (x + 3.0f * i) * 2)) << i;
  }
  EXPECT_EQ(replays(step.stats()), 6u) << step.refusal();
}

TEST(CaptureApart, AnObjectThatIsMadeInsideIsRefused) {
  auto step = capture([](at::Tensor x) {
    Apart twice([](at::Tensor y) { return y * 2; });
    return twice(x);
  });
  for (int i = 0; i < 60; ++i) {
    const at::Tensor x = torch::full({2}, i);
    EXPECT_TRUE(same_bits(step(x), x * 2));
  }
  EXPECT_EQ(replays(step.stats()), 0u);
  EXPECT_THAT(step.refusal() + step.explain(), HasSubstr("runs apart in each call"));
}

TEST(CaptureApart, AnObjectThatIsGoneIsNotCalled) {
  auto inner = std::make_unique<Apart<at::Tensor(at::Tensor)>>([](at::Tensor y) { return y * 2; });
  bool calls = true;
  auto step = capture([&](at::Tensor x) { return calls ? (*inner)(x) : x; });
  for (int i = 0; i < 8; ++i) step(torch::ones({2}));
  EXPECT_EQ(replays(step.stats()), 4u);
  calls = false;
  inner.reset();
  EXPECT_TRUE(same_bits(step(torch::ones({2})), torch::ones({2})));
}

TEST(CaptureApart, AWriteBehindTheStepsBackIsRefusedOrAnError) {
  const at::Tensor weight = torch::ones({2});
  int calls = 0, from = 0;
  Apart writes([&](at::Tensor) {
    if (++calls > from) weight.add_(1);
  });
  const auto function = [&](at::Tensor x) {
    at::Tensor y = x * weight;
    writes(y);
    return y * weight;
  };
  auto refused = capture(function);
  for (int i = 0; i < 6; ++i) refused(torch::ones({2}));
  EXPECT_THAT(refused.refusal(), HasSubstr("changes a tensor that the step uses"));
  calls = 0, from = 8;
  auto late = capture(function);
  for (int i = 0; i < 8; ++i) late(torch::ones({2}));
  EXPECT_EQ(replays(late.stats()), 4u) << late.refusal();
  EXPECT_THAT(error_of([&] { late(torch::ones({2})); }),
              HasSubstr("changed a tensor that the captured step uses"));
  EXPECT_EQ(calls, 9);
}

TEST(CaptureApart, LanesAndAPart) {
  Seen seen;
  SideBySide both(seen.make(weigh), {.lanes = 2});
  EXPECT_EQ(both.run(30), "") << both.step().explain();
  EXPECT_EQ(seen.of_each[1]->size(), 30u);
  auto part = captured([](at::Tensor x) { return apart([](at::Tensor y) { return y * 2; }, x) + x; });
  for (int i = 0; i < 6; ++i) part(torch::ones({2}).requires_grad_()).sum().backward();
  EXPECT_THAT(part.refusal(), HasSubstr("runs apart in a captured part"));
}

TEST(CaptureApart, WithoutACaptureItIsACallOnCopies) {
  const at::Tensor x = torch::ones({2}).requires_grad_();
  const at::Tensor y = apart([](at::Tensor a) { return a.mul_(3); }, x);
  EXPECT_TRUE(same_bits(x, torch::ones({2})));
  EXPECT_TRUE(same_bits(y, torch::full({2}, 3.0f)));
  EXPECT_FALSE(y.requires_grad());
}

}  // namespace
}  // namespace overdrive::test
