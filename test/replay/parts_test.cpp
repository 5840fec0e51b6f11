// A captured part does what its function does: outputs, gradients, the graph around it, and what it refuses.
#include "test/replay/parts_fixture.h"
#include "test/support/engines.h"

#include <torch/csrc/autograd/autograd.h>

namespace overdrive::test {
namespace {

using namespace torch::nn;

TEST(Part, TrainsAsEagerDoes) {
  PartBesideEager both(small_part);
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_EQ(both.part().refusal(), "");
  const CaptureStats stats = both.part().stats();
  EXPECT_GE(stats.replayed, 55u) << both.part().explain();
  EXPECT_EQ(stats.backwards, stats.replayed);
  EXPECT_EQ(stats.again, 0u);
}

TEST(Part, TrainsAsEagerDoesOnOverdrive) {
  on<Overdrive>([] {
    PartBesideEager both(small_part);
    EXPECT_EQ(both.run(60), "") << both.part().explain();
    EXPECT_GE(replays(both.part().stats()), 55u) << both.part().explain();
  });
}

TEST(Part, WithDropoutAndBatchNorm) {
  PartBesideEager both([] {
    return part_of_net(Sequential(Linear(8, 16), BatchNorm1d(16), Dropout(0.3), ReLU(), Linear(16, 4)), {6, 8},
                       {6, 4}, adam());
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 55u) << both.part().explain();
}

TEST(Part, Convolutions) {
  PartBesideEager both([] {
    return part_of_net(
        Sequential(Conv2d(2, 4, 3), ReLU(), MaxPool2d(2), Conv2d(4, 3, 3), Flatten(), Linear(27, 3)),
        {2, 2, 12, 12}, {2, 3});
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 15u) << both.part().explain();
}

// The gradients of each call are added one by one, in eager's order: ((a + b) + c) + d is not (a + b) + (c +
// d).
TEST(Part, ACellThatIsCalledInALoop) {
  PartBesideEager both([] {
    auto cell = std::make_shared<torch::nn::GRUCellImpl>(6, 10);
    auto optimizer = adam()(cell->parameters());
    return PartProgram{.model = cell,
                       .function = [cell](const Tensors& in) { return Tensors{cell->forward(in[0], in[1])}; },
                       .step =
                           [=](const PartFunction& part, int i) {
                             optimizer->zero_grad();
                             at::Tensor h = torch::zeros({3, 10}), loss = torch::zeros({});
                             for (int t = 0; t < 7; ++t) {
                               h = part({batch_of(8 * i + t, {3, 6}, {1})[0], h})[0];
                               loss = loss + h.pow(2).sum();
                             }
                             loss.backward();
                             optimizer->step();
                             return Tensors{loss, h};
                           }};
  });
  EXPECT_EQ(both.run(30), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 120u) << both.part().explain();
}

TEST(Part, AnInputInTheMiddleOfAGraph) {
  PartBesideEager both([] {
    Sequential first(Linear(5, 8), Tanh()), second(Linear(8, 8), Tanh(), Linear(8, 2));
    auto all = std::make_shared<torch::nn::ModuleListImpl>();
    all->push_back(first.ptr());
    all->push_back(second.ptr());
    return PartProgram{
        .model = all,
        .function = [second](const Tensors& in) mutable { return Tensors{second->forward(in[0])}; },
        .step =
            [=](const PartFunction& part, int i) mutable {
              all->zero_grad();
              at::Tensor x = batch_of(i, {4, 5}, {1})[0].requires_grad_();
              at::Tensor h = first->forward(x);
              at::Tensor loss = (part({h})[0] * h.sum()).sum();
              loss.backward();
              return Tensors{loss, x.grad()};
            }};
  });
  EXPECT_EQ(both.run(30), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 24u) << both.part().explain();
}

// Hooks of parameters see the gradients from the last layer to the first, as in eager.
TEST(Part, HooksOfParametersRunInEagersOrder) {
  static std::vector<int> order;
  PartBesideEager both([] {
    PartProgram program = part_of_net(Sequential(Linear(8, 16), LayerNorm(LayerNormOptions({16})), Tanh(),
                                                 Linear(16, 16), BatchNorm1d(16), Linear(16, 4)),
                                      {5, 8}, {5, 4});
    const Tensors parameters = program.model->parameters();
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      parameters[i].register_hook([i](const at::Tensor& gradient) {
        order.push_back(i);
        return gradient * 2;
      });
    }
    program.step = [train = program.step](const PartFunction& part, int i) {
      order.clear();
      Tensors results = train(part, i);
      std::vector<double> seen(order.begin(), order.end());
      results.push_back(torch::tensor(seen));
      return results;
    };
    return program;
  });
  EXPECT_EQ(both.run(30), "") << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 25u) << both.part().explain();
}

// Second derivatives lead into the nodes of the function, so that a part that is used for them stays eager.
TEST(Part, SecondDerivatives) {
  PartBesideEager both([] {
    PartProgram program = small_part();
    auto model = program.model;
    program.step = [model](const PartFunction& part, int i) {
      model->zero_grad();
      at::Tensor x = batch_of(i, {5, 8}, {1})[0].requires_grad_();
      const bool twice = i % 3 == 2;
      at::Tensor y = part({x})[0].sum();
      const at::Tensor slope = torch::autograd::grad({y}, {x}, {}, true, twice)[0];
      at::Tensor loss = twice ? slope.pow(2).sum() + y : y;
      loss.backward();
      return Tensors{loss, slope, x.grad()};
    };
    return program;
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
  EXPECT_THAT(both.part().refusal(), testing::HasSubstr("create_graph"));
}

// The first of them, after replays, is made by the function, which runs once more.
TEST(Part, ASecondDerivativeAfterReplays) {
  torch::manual_seed(3);
  Sequential net(Linear(8, 16), Tanh(), Linear(16, 1));
  auto part = captured(net);
  const auto penalty = [&](bool captured, bool twice) {
    net->zero_grad();
    at::Tensor x = batch_of(3, {5, 8}, {1})[0].requires_grad_();
    const at::Tensor y = captured ? part(x) : net->forward(x);
    const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, twice, twice)[0];
    if (twice) slope.pow(2).sum().backward();
    return Tensors{slope.detach(), twice ? net->parameters()[0].grad().clone() : slope.detach()};
  };
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(same_bits(penalty(true, false)[0], penalty(false, false)[0]));
  ASSERT_GT(part.stats().backwards, 2u) << part.explain();
  const uint64_t before = part.stats().again;
  const Tensors ours = penalty(true, true), stock = penalty(false, true);
  EXPECT_EQ(part.stats().again, before + 1);
  EXPECT_TRUE(same_bits(ours[0], stock[0]));
  EXPECT_TRUE(ours[1].allclose(stock[1], 1e-5, 1e-7));
  penalty(true, true);
  EXPECT_THAT(part.refusal(), testing::HasSubstr("create_graph"));
}

TEST(Part, KeptGraphsAndASecondBackward) {
  PartBesideEager both([] {
    PartProgram program = small_part();
    auto model = program.model;
    program.step = [model](const PartFunction& part, int i) {
      model->zero_grad();
      at::Tensor loss = part({batch_of(i, {5, 8}, {1})[0]})[0].pow(2).sum();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward({}, /*retain_graph=*/i % 2 == 0);
      if (i % 2 == 1) loss.backward();
      return Tensors{loss};
    };
    return program;
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
}

TEST(Part, WhatIsChangedBeforeTheBackward) {
  for (const int which : {0, 1, 2}) {
    PartBesideEager both([which] {
      PartProgram program = small_part();
      auto net = std::dynamic_pointer_cast<SequentialImpl>(program.model);
      program.function = [net](const Tensors& in) { return Tensors{torch::tanh(net->forward(in[0]))}; };
      program.step = [=, model = program.model](const PartFunction& part, int i) {
        model->zero_grad();
        at::Tensor x = batch_of(i, {5, 8}, {1})[0];
        at::Tensor y = part({x})[0];
        const at::Tensor loss = y.sum();
        if (i > 10 && i % 2) {
          torch::NoGradGuard no_graph;
          if (which == 0) x.mul_(2);
          if (which == 1) model->parameters()[2].mul_(1);
          if (which == 2) y.mul_(2);
        }
        loss.backward();
        return Tensors{loss};
      };
      return program;
    });
    const std::string text = both.run(20);
    // The text names what made a view of the parameter, which a part does not keep.
    if (which == 1) {
      EXPECT_THAT(text, testing::HasSubstr("modified by an inplace operation"));
    } else {
      EXPECT_EQ(text, "") << which << both.part().explain();
    }
    EXPECT_GT(replays(both.part().stats()), 5u);
  }
}

TEST(Part, WithoutGraph) {
  PartBesideEager both([] {
    PartProgram program = small_part();
    program.step = [train = program.step](const PartFunction& part, int i) {
      Tensors results = train(part, i);
      torch::NoGradGuard no_graph;
      results.push_back(part({batch_of(i, {5, 8}, {1})[0]})[0]);
      return results;
    };
    return program;
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 70u) << both.part().explain();
}

TEST(Part, AnOutputThatNobodyUses) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = net,
                       .function =
                           [net](const Tensors& in) {
                             const at::Tensor y = net->forward(in[0]);
                             return Tensors{y.tanh(), y.sin(), y.argmax(1)};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             net->zero_grad();
                             const Tensors all = part({batch_of(i, {4, 6}, {1})[0]});
                             const at::Tensor loss = i % 8 == 7 ? (all[0] * all[1]).sum() : all[0].sum();
                             loss.backward();
                             return Tensors{loss, all[2]};
                           }};
  });
  EXPECT_EQ(both.run(50), "") << both.part().explain();
  EXPECT_GT(both.part().stats().backwards, 30u) << both.part().explain();
  EXPECT_GT(both.part().stats().again, 0u);
}

// Two nets with the same parameters.
std::pair<Sequential, Sequential> twins() {
  Sequential stock(Linear(6, 8), Tanh(), Linear(8, 2));
  Sequential ours(Linear(6, 8), Tanh(), Linear(8, 2));
  for (size_t i = 0; i < 4; ++i) ours->parameters()[i].detach().copy_(stock->parameters()[i].detach());
  return {stock, ours};
}

TEST(Part, UpdatesOfAnOptimizer) {
  for (const MakeOptimizer& make : {sgd(), adam()}) {
    torch::manual_seed(5);
    auto [stock, ours] = twins();
    const auto of_stock = make(stock->parameters()), of_ours = make(ours->parameters());
    auto net = captured(ours);
    CapturedOptimizer update = captured(*of_ours);
    for (int i = 0; i < 30; ++i) {
      const Tensors batch = batch_of(i, {5, 6}, {5, 2});
      for (auto& group : of_stock->param_groups()) group.options().set_lr(0.1 / (1 + i));
      for (auto& group : of_ours->param_groups()) group.options().set_lr(0.1 / (1 + i));
      of_stock->zero_grad();
      torch::mse_loss(stock->forward(batch[0]), batch[1]).backward();
      of_stock->step();
      update.zero_grad();
      torch::mse_loss(net(batch[0]), batch[1]).backward();
      update.step();
      for (size_t k = 0; k < 4; ++k) ASSERT_TRUE(same_bits(stock->parameters()[k], ours->parameters()[k])) << i;
    }
    EXPECT_GE(replays(update.update().stats()), 25u) << update.update().explain();
    EXPECT_GE(replays(net.stats()), 25u) << net.explain();
  }
}

// L-BFGS calls its closure several times a step, and each call replays the part.
TEST(Part, ClosuresOfOptimizers) {
  const MakeOptimizer lbfgs = [](const Tensors& parameters) {
    return std::make_unique<torch::optim::LBFGS>(parameters, torch::optim::LBFGSOptions(0.1).max_iter(5));
  };
  for (const MakeOptimizer& make : {sgd(), adam(), lbfgs}) {
    auto [stock, ours] = twins();
    const auto of_stock = make(stock->parameters()), of_ours = make(ours->parameters());
    auto net = captured(ours);
    CapturedOptimizer update = captured(*of_ours);
    int calls = 0;
    for (int i = 0; i < 30; ++i) {
      const Tensors batch = batch_of(i, {5, 6}, {5, 2});
      const auto loss_by = [&](auto&& forward, torch::optim::Optimizer& optimizer) {
        return [&] {
          ++calls;
          optimizer.zero_grad();
          at::Tensor loss = torch::mse_loss(forward(batch[0]), batch[1]);
          loss.backward();
          return loss;
        };
      };
      const at::NoGradGuard closures_have_a_graph;
      const at::Tensor wanted =
          of_stock->step(loss_by([&](const at::Tensor& x) { return stock->forward(x); }, *of_stock));
      ASSERT_TRUE(
          same_bits(wanted, update.step(loss_by([&](const at::Tensor& x) { return net(x); }, *of_ours))))
          << i;
      for (size_t k = 0; k < 4; ++k) ASSERT_TRUE(same_bits(stock->parameters()[k], ours->parameters()[k])) << i;
    }
    EXPECT_GE(replays(net.stats()), 25u) << net.explain();
    EXPECT_EQ(replays(update.update().stats()) >= 25u, calls == 60) << update.update().explain();
  }
}

// x of the derivative is made inside, so that its own gradient leads nowhere.
TEST(Part, DerivativesInsideThePart) {
  PartBesideEager both([] {
    Sequential net(Linear(1, 8), Tanh(), Linear(8, 1));
    return PartProgram{.model = net.ptr(),
                       .function =
                           [net](const Tensors& in) mutable {
                             const at::Tensor x = in[0].detach().requires_grad_();
                             const at::Tensor y = net->forward(x);
                             const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
                             return Tensors{(slope - y).square().mean()};
                           },
                       .step =
                           [net](const PartFunction& part, int i) mutable {
                             net->zero_grad();
                             const at::Tensor loss = part({batch_of(i, {7, 1}, {1})[0]})[0];
                             loss.backward();
                             return Tensors{loss};
                           }};
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 15u) << both.part().explain();
  EXPECT_EQ(both.part().stats().again, 0u);
}

TEST(Part, ReasonsToRefuse) {
  const auto refusal_of = [](const PartFunction& function) {
    CapturedStep part(function, {.constant_modes = true}, true);
    for (int i = 0; i < 6; ++i) {
      const at::Tensor w = torch::ones({3}, torch::requires_grad());
      const at::Tensor x = batch_of(i, {3}, {1})[0] * w;
      part.call({x}).at(0).sum().backward();
    }
    return part.refusal();
  };
  const at::Tensor leaf = torch::ones({3}, torch::requires_grad());
  const at::Tensor inner = leaf * 2;
  EXPECT_THAT(refusal_of([&](const Tensors& in) { return Tensors{in[0] * inner}; }),
              testing::HasSubstr("none of its arguments"));
  EXPECT_THAT(refusal_of([](const Tensors& in) {
                at::Tensor y = in[0] * 2;
                y.retain_grad();
                return Tensors{y.sin()};
              }),
              testing::HasSubstr("retain_grad()"));
  EXPECT_THAT(refusal_of([](const Tensors& in) {
                const at::Tensor y = in[0] * 2;
                return Tensors{y, y.view({1, 3})};
              }),
              testing::HasSubstr("share memory"));
  EXPECT_THAT(refusal_of([](const Tensors& in) { return Tensors{in[0] * in[0].sum().item<float>()}; }),
              testing::HasSubstr("item()"));
  at::Tensor kept;
  EXPECT_EQ(refusal_of([&](const Tensors& in) { return Tensors{in[0] * 3}; }), "");
}

}  // namespace
}  // namespace overdrive::test
