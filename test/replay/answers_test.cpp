// Operators that tell the program something of its data, a number or sizes: a replay asks again, and another
// answer takes it back and makes the call eager.
#include "test/replay/parts_fixture.h"

namespace overdrive::test {
namespace {

using testing::HasSubstr;

// Trains with batch norm, whose statistics are changed before the question.
Training asking(const std::function<at::Tensor(const at::Tensor& y, const at::Tensor& asked)>& loss_of,
                const std::function<at::Tensor(int)>& asked) {
  using namespace torch::nn;
  Sequential net(Linear(3, 4), BatchNorm1d(4), Linear(4, 1));
  Training training{.model = net.ptr(), .optimizer = sgd()(net->parameters())};
  training.step = [net, loss_of, optimizer = training.optimizer](const Tensors& inputs) mutable {
    optimizer->zero_grad();
    at::Tensor loss = loss_of(net->forward(inputs[0]), inputs[1]);
    loss.backward();
    optimizer->step();
    return loss.detach().clone();
  };
  training.inputs = [asked](int i) { return Tensors{batch_of(i, {6, 3}, {1})[0], asked(i)}; };
  return training;
}

// The mask of step i: three of six, others in each step, and two of them in the steps that are told.
at::Tensor mask_of(int i, const std::vector<int>& steps_with_two = {}) {
  at::Tensor mask = torch::zeros({6}, torch::kBool);
  const bool two = std::find(steps_with_two.begin(), steps_with_two.end(), i) != steps_with_two.end();
  for (int k = 0; k < (two ? 2 : 3); ++k) mask[(i + 2 * k) % 6] = true;
  return mask;
}

TEST(CaptureAnswers, AYesThatIsNoNowAndThen) {
  SideBySide both([] {
    return asking(
        [](const at::Tensor& y, const at::Tensor& asked) {
          return asked.isfinite().all().item<bool>() ? y.pow(2).mean() : y.sum() * 0.1;
        },
        [](int i) { return i % 7 == 6 ? torch::full({2}, INFINITY) : torch::ones({2}) * i; });
  });
  EXPECT_EQ(both.run(30), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().undone, 4u) << both.step().explain();
  EXPECT_GE(replays(both.step().stats()), 18u) << both.step().explain();
  EXPECT_EQ(both.step().refusal(), "");
}

TEST(CaptureAnswers, AQuestionAfterTheUpdate) {
  SideBySide both([] {
    Training training = small_mlp(adam());
    training.step = [inner = training.step, model = training.model](const Tensors& inputs) {
      at::Tensor loss = inner(inputs);
      const at::Tensor first = model->parameters()[0];
      if ((first.abs().max() + inputs[0].max() > 2).item<bool>()) {
        torch::NoGradGuard no_grad;
        first.mul_(0.5);
      }
      return loss;
    };
    training.inputs = [](int i) {
      Tensors inputs = batch_of(i, {5, 8}, {5, 4});
      if (i % 9 == 8) inputs[0] = inputs[0] * 10;
      return inputs;
    };
    return training;
  });
  EXPECT_EQ(both.run(30), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().undone, 3u) << both.step().explain();
}

TEST(CaptureAnswers, SizesThatDependOnData) {
  const std::vector<std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>> losses{
      [](const at::Tensor& y, const at::Tensor& mask) { return y.index({mask}).pow(2).sum(); },
      [](const at::Tensor& y, const at::Tensor& mask) { return y.squeeze(1).masked_select(mask).sum(); },
      [](const at::Tensor& y, const at::Tensor& mask) {
        return y.index_select(0, mask.nonzero().squeeze(1)).sum();
      },
      [](const at::Tensor& y, const at::Tensor& mask) {
        return y.repeat_interleave(mask.to(torch::kLong), 0).sin().sum();
      },
      [](const at::Tensor& y, const at::Tensor& mask) {
        const auto values = std::get<0>(at::_unique2(torch::arange(1, 7).mul(mask), true, true));
        return y.sum() * values.numel();
      },
  };
  for (const auto& loss : losses) {
    SideBySide both([&] { return asking(loss, [](int i) { return mask_of(i, {8, 9, 15}); }); });
    EXPECT_EQ(both.run(24), "") << both.step().explain();
    EXPECT_GE(both.step().stats().undone, 2u) << both.step().explain();
    EXPECT_GE(replays(both.step().stats()), 12u) << both.step().explain();
  }
}

// A size of one would be spread over the recorded one by a copy.
TEST(CaptureAnswers, OneElementForThree) {
  SideBySide both([] {
    return asking([](const at::Tensor& y, const at::Tensor& mask) { return y.index({mask}).exp().sum(); },
                  [](int i) { return i < 8 ? mask_of(i) : torch::arange(6) == i % 6; });
  });
  EXPECT_EQ(both.run(12), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().undone, 4u);
}

TEST(CaptureAnswers, AnAnswerThatChangesForGoodIsRecordedAnew) {
  SideBySide both([] {
    return asking(
        [](const at::Tensor& y, const at::Tensor& asked) {
          return (asked > 15).item<bool>() ? y.pow(2).mean() : y.abs().mean();
        },
        [](int i) { return torch::tensor(i); });
  });
  EXPECT_EQ(both.run(60), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().outdated, 1u) << both.step().explain();
  EXPECT_GE(replays(both.step().stats()), 30u) << both.step().explain();
}

TEST(CaptureAnswers, TwoAnswersInTurnAreRefusedInTheEnd) {
  SideBySide both([] {
    return asking(
        [](const at::Tensor& y, const at::Tensor& asked) {
          return (asked < 6).logical_or(asked % 2 == 0).item<bool>() ? y.pow(2).mean() : y.abs().mean();
        },
        [](int i) { return torch::tensor(i); });
  });
  EXPECT_EQ(both.run(200), "") << both.step().explain();
  EXPECT_THAT(both.step().refusal(), HasSubstr("item()"));
  EXPECT_THAT(both.step().refusal(), HasSubstr("now one thing and now another"));
}

// The flags are the same in all recorded calls, so that the first other ones are recorded.
TEST(CaptureAnswers, FlagsThatChangeForOneCallNowAndThen) {
  SideBySide both([] {
    return asking(
        [](const at::Tensor& y, const at::Tensor& asked) {
          return asked.all().item<bool>() ? y.pow(2).mean() : y.abs().mean();
        },
        [](int i) {
          return torch::tensor({true, i % 20 != 19});
        });
  });
  EXPECT_EQ(both.run(200), "") << both.step().explain();
  EXPECT_EQ(both.step().refusal(), "");
  EXPECT_GE(replays(both.step().stats()), 130u) << both.step().explain();
}

TEST(CaptureAnswers, ANumberThatVariesIsToldWithItsValues) {
  SideBySide both([] {
    return asking(
        [](const at::Tensor& y, const at::Tensor& asked) { return y.pow(2).mean() * asked.item<float>(); },
        [](int i) { return torch::tensor(0.5f * static_cast<float>(i)); });
  });
  EXPECT_EQ(both.run(12), "");
  EXPECT_THAT(both.step().refusal(), HasSubstr("item()"));
  EXPECT_THAT(both.step().refusal(), HasSubstr(" in one call and "));
  EXPECT_EQ(replays(both.step().stats()), 0u);
}

TEST(CaptureAnswers, InAPart) {
  PartBesideEager both([] {
    torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.2));
    return PartProgram{.model = net.ptr(),
                       .function =
                           [net](const Tensors& in) mutable {
                             const at::Tensor y = net->forward(in[0]);
                             const bool all = (in[1] >= 0).all().item<bool>();
                             return Tensors{all ? y.index({in[2]}).tanh() : y.index({in[2]}) * 2};
                           },
                       .step =
                           [net](const PartFunction& function, int i) mutable {
                             net->zero_grad();
                             const at::Tensor asked = torch::tensor({i, i % 8 == 7 ? -1 : 1});
                             const at::Tensor loss =
                                 function({batch_of(i, {6, 3}, {1})[0], asked, mask_of(i, {12, 20})})[0].sum();
                             loss.backward();
                             return Tensors{loss.detach()};
                           }};
  });
  EXPECT_EQ(both.run(30), "") << both.part().explain();
  EXPECT_EQ(both.part().stats().undone, 5u) << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 18u) << both.part().explain();
}

TEST(CaptureAnswers, AQuestionInThePartsBackwardIsRefused) {
  struct Asks : torch::autograd::Function<Asks> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
      return {gradients[0] * (gradients[0].isfinite().all().item<bool>() ? 2 : 0)};
    }
  };
  CapturedStep part([](const Tensors& in) { return Tensors{Asks::apply(in[0])}; }, {}, /*is_part=*/true);
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = batch_of(i, {3}, {1})[0].requires_grad_();
    part.call({x})[0].sum().backward();
    EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 2.f)));
  }
  EXPECT_THAT(part.refusal(), HasSubstr("in the backward of a captured part"));
}

}  // namespace
}  // namespace overdrive::test
