// A captured part whose gradients come in several forms in turn: one forward with a backward for each.
#include "test/replay/parts_fixture.h"

#include <gmock/gmock.h>

namespace overdrive::test {
namespace {

using namespace torch::nn;

// The gradient of the sum is expanded, that of the mean dense, that of the product transposed; then each has
// other strides.
at::Tensor loss_in_form(const at::Tensor& y, int form) {
  if (form == 0) return y.sum();
  if (form == 1) return y.square().mean();
  if (form == 2) return y.t().matmul(torch::ones({y.size(0), 2})).sum();
  return torch::cat({torch::zeros({y.size(0), form}), y}, 1).square().sum();
}

PartProgram calls_in_turn(int forms, int calls) {
  auto net = Sequential(Linear(2, 16), Tanh(), Linear(16, 3));
  return {.model = net.ptr(),
          .function =
              [net](const Tensors& in) mutable {
                return Tensors{net->forward(in[0].pow(3)) * net->parameters()[3].pow(2)};
              },
          .step =
              [=](const PartFunction& part, int i) mutable {
                net->zero_grad();
                at::Tensor loss = torch::zeros({});
                for (int call = 0; call < calls; ++call)
                  loss = loss + loss_in_form(part({batch_of(8 * i + call, {8, 2}, {1})[0]})[0], call % forms);
                loss.backward();
                return Tensors{loss};
              }};
}

TEST(PartForms, InTurnAreReplayed) {
  PartBesideEager both([] { return calls_in_turn(3, 3); });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 105u) << both.part().explain();
  EXPECT_EQ(both.part().stats().again, 0u);
}

// The function runs once more for those that are seldom.
TEST(PartForms, MoreThanAreKept) {
  PartBesideEager both([] { return calls_in_turn(10, 11); });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  const CaptureStats stats = both.part().stats();
  EXPECT_GT(stats.backwards, 50u) << both.part().explain();
  EXPECT_GT(stats.again, 0u);
}

// A form that is met late and comes again gets a backward; that of the first calls keeps its own.
TEST(PartForms, AFormThatIsMetLate) {
  PartBesideEager both([] {
    PartProgram program = calls_in_turn(1, 1);
    auto model = program.model;
    program.step = [model](const PartFunction& part, int i) {
      model->zero_grad();
      const at::Tensor y = part({batch_of(i, {8, 2}, {1})[0]})[0];
      const at::Tensor loss = loss_in_form(y, i > 40 && i % 4 == 0 ? 1 : 0);
      loss.backward();
      return Tensors{loss};
    };
    return program;
  });
  EXPECT_EQ(both.run(200), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 180u) << both.part().explain();
  EXPECT_EQ(both.part().stats().again, 8u);
  EXPECT_EQ(both.part().stats().outdated, 1u);
}

struct TwoOutputs {
  std::shared_ptr<ModuleListImpl> model = std::make_shared<ModuleListImpl>();
  at::Tensor factor = torch::full({4, 3}, 2.0);

  TwoOutputs() {
    model->push_back(Linear(6, 3));
    model->push_back(Linear(6, 3));
  }
  // The backward of the first output reads the factor, that of the second nothing that may change.
  Tensors operator()(const Tensors& in) const {
    return {model->at<LinearImpl>(0).forward(in[0]).tanh() * factor, in[0].narrow(1, 0, 3) + weight(1)};
  }
  at::Tensor weight(int layer) const { return model->at<LinearImpl>(layer).bias; }
};

PartProgram two_outputs(const std::function<at::Tensor(const TwoOutputs&, const Tensors&, int)>& use) {
  const TwoOutputs net;
  return {.model = net.model,
          .function = [net](const Tensors& in) { return net(in); },
          .step =
              [net, use](const PartFunction& part, int i) {
                net.model->zero_grad();
                const at::Tensor x = batch_of(i, {4, 6}, {1})[0];
                const at::Tensor loss = use(net, part({x}), i);
                return loss.defined() ? Tensors{loss} : Tensors{};
              }};
}

// One output has a gradient in one call, the other one in the next, both in the third.
TEST(PartForms, OutputsThatHaveAGradientInTurn) {
  PartBesideEager both([] {
    return two_outputs([](const TwoOutputs&, const Tensors& y, int i) {
      at::Tensor loss = i % 3 == 0 ? y[0].sum() : i % 3 == 1 ? y[1].square().sum() : (y[0] * y[1]).sum();
      loss.backward();
      return loss;
    });
  });
  EXPECT_EQ(both.run(90), "") << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 70u) << both.part().explain();
}

// A change in between is an error for the output whose backward reads it, and none for the other one.
TEST(PartForms, AChangeThatOneOfTheBackwardsReads) {
  PartBesideEager both([] {
    return two_outputs([](const TwoOutputs& net, const Tensors& y, int i) {
      const at::Tensor loss = i % 2 ? y[0].sum() : y[1].square().sum();
      if (i >= 30) {
        const torch::NoGradGuard no_grad;
        at::Tensor(net.factor).mul_(1.5);
      }
      loss.backward();
      return loss;
    });
  });
  EXPECT_EQ(both.run(50), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 30u) << both.part().explain();
}

// What is freed is what the backward of the form has read.
TEST(PartForms, ASecondBackwardOfOneOutput) {
  static std::string errors;
  PartBesideEager both([] {
    return two_outputs([](const TwoOutputs&, const Tensors& y, int i) {
      errors.clear();
      const at::Tensor first = y[0].sum(), second = y[1].sum();
      (i % 2 ? first : second).backward({}, true);
      for (const at::Tensor& loss : {second, first, second, first, second}) {
        if (!error_of([&] { loss.backward({}, loss.is_same(second) && i % 4 == 0); }).starts_with("(no"))
          errors += loss.is_same(first) ? "first " : "second ";
      }
      return torch::full({}, static_cast<double>(errors.size()));
    });
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 50u) << both.part().explain();
  EXPECT_LE(both.part().stats().again, 8u);
}

// One graph that is kept, with backwards of all forms in all orders.
TEST(PartForms, SeveralBackwardsOfOneGraph) {
  PartBesideEager both([] {
    auto net = Sequential(Linear(4, 16), Tanh(), Linear(16, 3));
    return PartProgram{.model = net.ptr(),
                       .function = [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; },
                       .step =
                           [=](const PartFunction& part, int i) mutable {
                             net->zero_grad();
                             const at::Tensor y = part({batch_of(i, {8, 4}, {1})[0]})[0];
                             at::Tensor total = torch::zeros({});
                             for (int k = 0; k < 6; ++k) {
                               const at::Tensor loss = loss_in_form(y, (k * (1 + i % 2) + i) % 3);
                               loss.backward({}, true);
                               total = total + loss.detach();
                             }
                             return Tensors{total};
                           }};
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 180u) << both.part().explain();
}

// grad() of some parameters and a backward to all of them, in turn.
TEST(PartForms, GradientsThatAreWantedInTurn) {
  PartBesideEager both([] {
    auto net = Sequential(Linear(4, 16), Tanh(), Linear(16, 3));
    return PartProgram{.model = net.ptr(),
                       .function = [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; },
                       .step =
                           [=](const PartFunction& part, int i) mutable {
                             net->zero_grad();
                             const at::Tensor loss = part({batch_of(i, {8, 4}, {1})[0]})[0].square().mean();
                             const Tensors all = net->parameters();
                             if (i % 3 == 0) {
                               loss.backward();
                               return Tensors{loss};
                             }
                             const Tensors to = i % 3 == 1 ? Tensors{all[0]} : Tensors{all[3], all[1]};
                             Tensors results = torch::autograd::grad({loss}, to);
                             results.push_back(loss);
                             return results;
                           }};
  });
  EXPECT_EQ(both.run(90), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 70u) << both.part().explain();
}

// Dropout and running statistics in the forward, every third call compared.
TEST(PartForms, WithStateAndComparedReplays) {
  PartBesideEager both(
      [] {
        auto net = Sequential(Linear(4, 16), BatchNorm1d(16), Dropout(0.4), Linear(16, 3));
        return PartProgram{
            .model = net.ptr(),
            .function = [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; },
            .step =
                [=](const PartFunction& part, int i) mutable {
                  net->zero_grad();
                  const at::Tensor y = part({batch_of(i, {8, 4}, {1})[0]})[0];
                  const at::Tensor loss = loss_in_form(y, i % 5 == 4 ? 4 : i % 3);
                  loss.backward();
                  return Tensors{loss};
                }};
      },
      {.check_every = 3});
  EXPECT_EQ(both.run(120), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 40u) << both.part().explain();
}

// One backward meets the same new form at each of many calls, which are recorded anew once.
TEST(PartForms, OfACellInALongLoop) {
  PartBesideEager both([] {
    auto cell = std::make_shared<torch::nn::LSTMCellImpl>(6, 6);
    return PartProgram{.model = cell,
                       .function =
                           [cell](const Tensors& in) {
                             const auto [h, c] = cell->forward(in[0], std::make_tuple(in[1], in[2]));
                             return Tensors{h, c};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             Tensors state{torch::zeros({3, 6}), torch::zeros({3, 6})};
                             for (int t = 0; t < 30; ++t)
                               state = part({batch_of(30 * i + t, {3, 6}, {1})[0], state[0], state[1]});
                             state[0].sum().backward();
                             return Tensors{state[0].detach()};
                           }};
  });
  EXPECT_EQ(both.run(12), "") << both.part().explain();
  EXPECT_EQ(both.part().refusal(), "");
  EXPECT_GT(replays(both.part().stats()), 200u) << both.part().explain();
}

// The recorded backward reads nothing that the forward left. Whether that of all outputs may run twice is seen
// when it runs.
TEST(PartForms, ASecondBackwardOfAFormThatIsNotRecorded) {
  for (const bool saves : {true, false}) {
    PartBesideEager both([saves] {
      auto net = Linear(6, 6);
      return PartProgram{.model = net.ptr(),
                         .function =
                             [=](const Tensors& in) mutable {
                               const at::Tensor first = saves ? net(in[0]).tanh() : net->weight + in[0].sum();
                               return Tensors{first, net->bias.sum()};
                             },
                         .step =
                             [=](const PartFunction& part, int i) mutable {
                               net->zero_grad();
                               const Tensors y = part({batch_of(i, {4, 6}, {1})[0]});
                               const at::Tensor loss = i < 12 ? y[1] * 2 : y[0].sum() + y[1];
                               loss.backward();
                               if (i >= 12) loss.backward();
                               return Tensors{loss};
                             }};
    });
    EXPECT_EQ(both.run(16), "") << saves << both.part().explain();
    EXPECT_GT(both.part().stats().again, 0u) << saves << both.part().explain();
  }
}

}  // namespace
}  // namespace overdrive::test
