// Inputs that are parts of other memory: slices of a data set, memory of the program's own at any address.
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

// A small training whose inputs are `rows` rows of a data set, each time others.
Training train_on_slices(int64_t columns, int64_t rows) {
  torch::nn::Sequential net(torch::nn::Linear(columns, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  Training training = train_sequential(net, adam(), {1}, {1});
  const at::Tensor x = torch::randn({400, columns}), y = torch::randn({400, 1});
  training.inputs = [=](int i) {
    const int64_t begin = i % (400 / rows) * rows;
    return Tensors{x.slice(0, begin, begin + rows), y.slice(0, begin, begin + rows)};
  };
  return training;
}

TEST(CaptureSlices, OfADataSetAreReplayed) {
  SideBySide training([] { return train_on_slices(8, 32); });
  EXPECT_EQ(training.run(20), "");
  EXPECT_EQ(replays(training.step().stats()), 16u) << training.step().explain();
}

TEST(CaptureSlices, ThatBeginAnywhereNeedFewPrograms) {
  SideBySide training([] { return train_on_slices(7, 5); });
  EXPECT_EQ(training.run(80), "");
  EXPECT_EQ(training.step().refusal(), "");
  // Four offsets modulo 16 bytes, four eager calls for each.
  EXPECT_EQ(replays(training.step().stats()), 64u) << training.step().explain();
}

TEST(CaptureSlices, TheSameOneInEachCall) {
  const at::Tensor data = torch::randn({64, 8});
  torch::nn::Linear model(8, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  auto step = capture(
      [&](at::Tensor x) {
        optimizer.zero_grad();
        const at::Tensor loss = model->forward(x).square().mean();
        loss.backward();
        optimizer.step();
        return loss;
      },
      {.optimizer = &optimizer});
  for (int i = 0; i < 10; ++i) step(data.slice(0, 32, 64));
  EXPECT_EQ(replays(step.stats()), 6u) << step.explain();
}

TEST(CaptureSlices, TwoOfOneTensorAreTwoInputs) {
  const at::Tensor data = torch::randn({100, 4});
  auto step = capture([](at::Tensor a, at::Tensor b) { return a * 2 - b; });
  for (int i = 0; i < 10; ++i) {
    const at::Tensor a = data.slice(0, i, i + 4), b = data.slice(0, 50 - 2 * i, 54 - 2 * i);
    EXPECT_TRUE(same_bits(step(a, b), a * 2 - b)) << i;
  }
  EXPECT_EQ(replays(step.stats()), 6u) << step.explain();
}

TEST(CaptureSlices, OfOneTensorThatTheFunctionChangesAreChanged) {
  at::Tensor data = torch::zeros({100, 4});
  auto step = capture([](at::Tensor a, at::Tensor b) {
    a.add_(b + 1);
    return a.sum();
  });
  for (int i = 0; i < 10; ++i) {
    const at::Tensor before = data.clone();
    step(data.slice(0, i, i + 1), data.slice(0, 50, 51));
    EXPECT_TRUE(same_bits(data[i], before[i] + before[50] + 1)) << i;
    EXPECT_TRUE(same_bits(data.slice(0, i + 1), before.slice(0, i + 1))) << i;
  }
  EXPECT_EQ(replays(step.stats()), 6u) << step.explain();
}

TEST(CaptureSlices, BesideTheTensorThatTheyAreSlicesOf) {
  at::Tensor data = torch::randn({64, 4});
  auto step = capture([&](at::Tensor x) { return x * data.sum(0); });
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = data.slice(0, i, i + 4);
    EXPECT_TRUE(same_bits(step(x), x * data.sum(0))) << i;
    data.mul_(1.25);
  }
  EXPECT_GE(replays(step.stats()), 6u) << step.explain();
}

TEST(CaptureSlices, OneTensorGivenTwiceIsAnotherProgramThanTwo) {
  auto step = capture([](at::Tensor a, at::Tensor b) { return a.is_same(b) ? a * 2 : a * 3 + b; });
  for (int i = 0; i < 16; ++i) {
    const at::Tensor a = torch::full({4}, i), b = torch::full({4}, i + 1);
    EXPECT_TRUE(same_bits(step(a, a), a * 2)) << i;
    EXPECT_TRUE(same_bits(step(a, b), a * 3 + b)) << i;
  }
  EXPECT_EQ(replays(step.stats()), 24u) << step.explain();
}

TEST(CaptureSlices, StridesCountFromTheBeginOfAStorage) {
  const at::Tensor data = torch::arange(64.0);
  auto step = capture([](at::Tensor x) { return x.as_strided({2}, {1}, 0) + 1; });
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(same_bits(step(data.slice(0, 0, 16)), data.slice(0, 0, 2) + 1));
  EXPECT_EQ(replays(step.stats()), 4u) << step.explain();
  EXPECT_TRUE(same_bits(step(data.slice(0, 16, 32)), data.slice(0, 0, 2) + 1));
}

}  // namespace
}  // namespace overdrive::test
