// Operators that throw in the middle of a replay: what lives on is as eager leaves it, or the step says that it
// is not and does not go on.
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

using testing::HasSubstr;

Training with_step(torch::nn::Sequential net,
                   std::function<at::Tensor(const Tensors&, const at::Tensor&)> loss_of,
                   std::function<Tensors(int)> inputs) {
  Training training{
      .model = net.ptr(),
      .optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1))};
  auto* raw = training.optimizer.get();
  training.step = [=](const Tensors& x) mutable {
    raw->zero_grad();
    at::Tensor loss = loss_of(x, net->forward(x[0]));
    loss.backward();
    raw->step();
    return loss + at::floor_divide(x[1], x[2]).sum();
  };
  training.inputs = std::move(inputs);
  return training;
}

// The eighth call and the ninth throw: before the step of the optimizer, or after it.
Training embedding_that_divides() {
  return with_step(
      torch::nn::Sequential(torch::nn::Embedding(5, 3), torch::nn::BatchNorm1d(3)),
      [](const Tensors&, const at::Tensor& y) { return y.pow(2).sum() + y[0][0]; },
      [](int i) {
        // Other values in each call: those that stay are compared first, and the call is eager when they
        // change.
        return Tensors{torch::tensor({i % 4, 1, i == 8 ? 7 : 2, 3}), torch::tensor({1, i + 2}),
                       torch::tensor({i + 1, i == 7 ? 0 : 2})};
      });
}

TEST(CaptureThrows, AnOperatorAfterTheStepOfTheOptimizer) {
  SideBySide both(embedding_that_divides);
  EXPECT_EQ(both.run(20), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().undone, 2u) << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 8u) << both.step().explain();
}

TEST(CaptureThrows, ALossThatLooksAtItsData) {
  SideBySide both([] {
    return with_step(
        torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 1)),
        [](const Tensors& x, const at::Tensor& y) {
          return torch::binary_cross_entropy(torch::sigmoid(y) * x[3], torch::full({4, 1}, 0.5));
        },
        [](int i) {
          return Tensors{torch::arange(12, torch::kFloat).reshape({4, 3}) * (i + 1), torch::tensor({i + 1}),
                         torch::tensor({i + 1}), torch::full({4, 1}, i == 9 ? 100. : 0.5 / (i + 1))};
        });
  });
  EXPECT_EQ(both.run(20), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().undone, 1u) << both.step().explain();
}

at::Tensor cholesky_or_diagonal(const at::Tensor& matrix) {
  try {
    return at::linalg_cholesky(matrix).sum();
  } catch (const c10::Error&) {
    return matrix.diagonal().sum();
  }
}

TEST(CaptureThrows, AnErrorThatTheFunctionCatches) {
  auto step = capture(cholesky_or_diagonal);
  const at::Tensor good = torch::tensor({4., 1., 1., 3.}).reshape({2, 2});
  for (int i = 1; i < 24; ++i) {
    const at::Tensor matrix = i < 12 ? good * -i : good * i;
    ASSERT_TRUE(same_bits(step(matrix), cholesky_or_diagonal(matrix))) << i;
  }
  EXPECT_THAT(step.refusal(), HasSubstr("throws an error that the function catches")) << step.explain();
}

TEST(CaptureThrows, ASettingThatTheFunctionLeaves) {
  auto step = capture([](const at::Tensor& x) {
    at::GradMode::set_enabled(false);
    return x * 2;
  });
  for (int i = 0; i < 8; ++i) {
    const at::AutoGradMode with_graph(true);
    step(torch::ones({2}));
    EXPECT_FALSE(at::GradMode::is_enabled()) << i;
  }
  EXPECT_THAT(step.refusal(), HasSubstr("another setting")) << step.explain();
}

}  // namespace
}  // namespace overdrive::test
