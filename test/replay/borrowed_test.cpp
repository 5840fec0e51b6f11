// A recording holds nothing of the program's: steps beside each other, gradients that one leaves to another.
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

struct Net {
  torch::nn::Linear model{16, 4};
  torch::optim::Adam optimizer{model->parameters(), 0.01};

  at::Tensor train(const at::Tensor& x) {
    optimizer.zero_grad();
    const at::Tensor loss = model->forward(x).square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  }
};

TEST(CaptureBorrowed, ATrainingBesideACapturedEvaluation) {
  Net net;
  auto train = capture([&](at::Tensor x) { return net.train(x); }, {.optimizer = &net.optimizer});
  auto evaluate = capture([&](at::Tensor x) {
    const torch::NoGradGuard no_grad;
    return net.model->forward(x).square().mean();
  });
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = torch::randn({16, 16});
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(same_bits(evaluate(x), net.model->forward(x).square().mean())) << i;
    const at::AutoGradMode grad(true);
    train(torch::randn({16, 16}));
  }
  EXPECT_EQ(replays(train.stats()), 16u) << train.explain();
  EXPECT_EQ(replays(evaluate.stats()), 16u) << evaluate.explain();
}

TEST(CaptureBorrowed, AGradientOfTheLastRecordingDiesWithTheNext) {
  torch::nn::Linear model(16, 4);
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> gradients;
  int calls = 0;
  auto step = capture([&](at::Tensor x) {
    model->zero_grad();
    // Another sum in the first recording: the second and the third are compared as well.
    at::Tensor loss = model->forward(x).square().sum();
    if (++calls == 2) loss = loss + 1;
    loss.backward();
    return loss;
  });
  for (int i = 0; i < 12; ++i) {
    step(torch::randn({16, 16}));
    gradients.push_back(model->weight.grad().storage().getWeakStorageImpl());
    for (size_t k = 0; k + 1 < gradients.size(); ++k) {
      EXPECT_TRUE(gradients[k] == gradients.back() || gradients[k].expired()) << k << " after " << i;
    }
  }
  EXPECT_EQ(step.refusal(), "");
  EXPECT_EQ(replays(step.stats()), 7u) << step.explain();
}

TEST(CaptureBorrowed, AParameterThatTheProgramLetsGoOf) {
  at::Tensor parameter = torch::ones({1000});
  const auto weak = parameter.storage().getWeakStorageImpl();
  auto step = capture([&](at::Tensor x) { return x * parameter; });
  for (int i = 0; i < 6; ++i) step(torch::ones({1000}));
  EXPECT_EQ(replays(step.stats()), 2u) << step.explain();
  parameter = torch::full({1000}, 2);
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(same_bits(step(torch::ones({1000})), torch::full({1000}, 2.0)));
}

// The discriminator's step leaves gradients in the generator, which the generator's step takes away.
void train_two(bool set_to_none, const std::function<void(const CapturedStep&, const CapturedStep&)>& check) {
  torch::nn::Linear real(8, 1), generator(2, 8);
  torch::optim::SGD for_real(real->parameters(), 0.1), for_generator(generator->parameters(), 0.1);
  auto first = capture(
      [&](at::Tensor z, at::Tensor x) {
        for_real.zero_grad(set_to_none);
        const at::Tensor loss =
            (real->forward(x) - 1).square().mean() + real->forward(generator->forward(z)).mean();
        loss.backward();
        for_real.step();
        return loss;
      },
      {.optimizer = &for_real});
  auto second = capture(
      [&](at::Tensor z) {
        for_generator.zero_grad(set_to_none);
        const at::Tensor loss = real->forward(generator->forward(z)).square().mean();
        loss.backward();
        for_generator.step();
        return loss;
      },
      {.optimizer = &for_generator});
  for (int i = 0; i < 30; ++i) {
    first(torch::randn({4, 2}), torch::randn({4, 8}));
    second(torch::randn({4, 2}));
  }
  check(first, second);
}

TEST(CaptureBorrowed, TwoStepsThatLeaveEachOtherGradients) {
  train_two(false, [](const CapturedStep& first, const CapturedStep& second) {
    EXPECT_EQ(first.refusal() + second.refusal(), "");
    EXPECT_GE(replays(first.stats()), 20u) << first.explain();
    EXPECT_GE(replays(second.stats()), 20u) << second.explain();
  });
}

TEST(CaptureBorrowed, TwoStepsThatMakeEachOtherNewGradientsAreToldSo) {
  train_two(true, [](const CapturedStep& first, const CapturedStep&) {
    EXPECT_NE(first.refusal().find("adds to a gradient that was there before the call"), std::string::npos);
  });
}

}  // namespace
}  // namespace overdrive::test
