// What a program may do between two calls to parameters, gradients, hooks and the state of an optimizer: a
// replay that went on would be wrong, so that each change is noticed.
#include "test/replay/replay_fixture.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace overdrive::test {
namespace {

using testing::HasSubstr;

// Runs until replays begin, changes both sides before step 2 of the second run, and runs on.
std::string outdated_by(SideBySide& both, const SideBySide::Between& action) {
  EXPECT_EQ(both.run(8), "");
  EXPECT_GT(replays(both.step().stats()), 2u) << both.step().explain();
  const CaptureStats before = both.step().stats();
  EXPECT_EQ(both.run(12,
                     [&](Training& training, int i) {
                       if (i == 2) action(training, i);
                     }),
            "");
  EXPECT_GE(both.step().stats().outdated, before.outdated + 1) << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), replays(before) + 6) << both.step().explain();
  return both.step().explain();
}

TEST(CaptureOutside, AHookThatIsAddedToAParameter) {
  SideBySide both([] { return small_mlp(); });
  std::map<Training*, unsigned> hooks;
  EXPECT_THAT(outdated_by(both,
                          [&](Training& training, int) {
                            hooks[&training] = training.model->parameters()[0].register_hook(
                                [](const at::Tensor& gradient) { return gradient * 0.5; });
                          }),
              HasSubstr("hook"));
  EXPECT_THAT(outdated_by(both, [&](Training& training,
                                    int) { training.model->parameters()[0].remove_hook(hooks[&training]); }),
              HasSubstr("hook"));
}

TEST(CaptureOutside, AHookThatIsAddedToTheNodeOfAParameter) {
  struct Halve final : torch::autograd::FunctionPreHook {
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
      return {gradients[0] * 0.5};
    }
  };
  SideBySide both([] { return small_mlp(); });
  std::vector<decltype(torch::autograd::Edge::function)> nodes;
  outdated_by(both, [&](Training& training, int) {
    nodes.push_back(torch::autograd::impl::grad_accumulator(training.model->parameters()[0]));
    nodes.back()->add_pre_hook(std::make_unique<Halve>());
  });
}

TEST(CaptureOutside, AStateOfTheOptimizerThatIsReplaced) {
  Tensors kept;
  SideBySide both([] { return small_mlp(adam()); });
  EXPECT_THAT(outdated_by(both,
                          [&](Training& training, int) {
                            for (const auto& p : training.model->parameters()) {
                              auto& state = static_cast<torch::optim::AdamParamState&>(
                                  *training.optimizer->state().at(p.unsafeGetTensorImpl()));
                              kept.push_back(state.exp_avg());  // alive, but no longer the optimizer's
                              state.exp_avg(state.exp_avg() * 0.5);
                            }
                          }),
              HasSubstr("state of the optimizer"));
}

// One of the optimizer's parameters has no gradient, as of a branch that is not used, and gets one.
TEST(CaptureOutside, AGradientOfAnIdleParameter) {
  SideBySide both([] {
    Training training = small_mlp();
    at::Tensor idle = torch::ones({3}).requires_grad_();
    training.optimizer->add_param_group(torch::optim::OptimizerParamGroup({idle}));
    auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
    auto* optimizer = training.optimizer.get();
    training.state = {idle};
    training.step = [=](const Tensors& inputs) {
      at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      return loss;
    };
    return training;
  });
  outdated_by(both, [](Training& training, int) { training.state[0].mutable_grad() = torch::ones({3}); });
}

// An evaluation between the steps of a training sees gradients that come and go, and reads none.
TEST(CaptureOutside, GradientsThatItLeavesAloneMayComeAndGo) {
  torch::manual_seed(3);
  torch::nn::Linear net(4, 2);
  auto evaluate = capture([&](at::Tensor x) {
    const at::NoGradGuard no_graph;
    return net(x).softmax(1);
  });
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = batch_of(i, {3, 4}, {1})[0], result = evaluate(x);
    const at::NoGradGuard no_graph;
    EXPECT_TRUE(same_bits(result, net(x).softmax(1))) << i;
    if (i % 3 == 0) net->zero_grad();
    if (i % 3 == 1) net->weight.mutable_grad() = torch::ones({2, 4});
  }
  EXPECT_EQ(evaluate.stats().outdated, 0u) << evaluate.explain();
  EXPECT_GT(replays(evaluate.stats()), 30u) << evaluate.explain();
}

// One that asks whether there is a gradient is recorded anew.
TEST(CaptureOutside, GradientsThatItAsksFor) {
  torch::nn::Linear net(4, 2);
  const auto ask = [&](at::Tensor x) {
    const at::NoGradGuard no_graph;
    return net->weight.grad().defined() ? net(x) * 2 : net(x) + 1;
  };
  auto step = capture(ask);
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = batch_of(i, {3, 4}, {1})[0];
    EXPECT_TRUE(same_bits(step(x), ask(x))) << i;
    if (i == 9) net->weight.mutable_grad() = torch::ones({2, 4});
    if (i == 19) net->weight.mutable_grad().reset();
    if (i == 29) net->weight.mutable_grad() = torch::ones({2, 4});
  }
  EXPECT_GT(replays(step.stats()), 10u) << step.explain();
}

// Two captured steps of two optimizers, as of a generator and a critic: the first leaves gradients of the
// second net alone, the second adds to gradients of the first.
TEST(CaptureOutside, GradientsThatAnotherStepMakes) {
  const auto train = [](bool captured) {
    torch::manual_seed(5);
    torch::nn::Linear critic(4, 1), maker(3, 4);
    torch::optim::Adam of_critic(critic->parameters(), torch::optim::AdamOptions(0.01));
    torch::optim::SGD of_maker(maker->parameters(), torch::optim::SGDOptions(0.1));
    const auto critic_step = [&](const Tensors& in) {
      of_critic.zero_grad();
      at::Tensor loss =
          critic->forward(maker->forward(in[0]).detach()).square().mean() - critic->forward(in[1]).mean();
      loss.backward();
      of_critic.step();
      return Tensors{loss};
    };
    const auto maker_step = [&](const Tensors& in) {
      of_maker.zero_grad();
      at::Tensor loss = -critic->forward(maker->forward(in[0])).mean();
      loss.backward();
      of_maker.step();
      return Tensors{loss};
    };
    CapturedStep first(critic_step, {.optimizer = &of_critic}), second(maker_step, {.optimizer = &of_maker});
    for (int i = 0; i < 30; ++i) {
      const Tensors noise = batch_of(i, {5, 3}, {5, 4});
      captured ? first.call(noise) : critic_step(noise);
      captured ? second.call({noise[0]}) : maker_step({noise[0]});
    }
    if (captured) {
      EXPECT_GT(replays(first.stats()), 15u) << first.explain();
      // The second one may be refused, because a gradient that it made lives on until the first one drops it;
      // then it runs eagerly.
      EXPECT_TRUE(replays(second.stats()) > 12u || second.stats().eager > 12u) << second.explain();
    }
    Tensors all = critic->parameters();
    for (const at::Tensor& p : maker->parameters()) all.push_back(p);
    for (size_t i = 0, count = all.size(); i < count; ++i) all.push_back(all[i].grad().clone());
    return all;
  };
  const Tensors eager = train(false), captured = train(true);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], captured[i])) << i;
}

TEST(CaptureOutside, AChildOfAModuleThatIsReplaced) {
  struct NetImpl : torch::nn::Module {
    torch::nn::Linear layer{8, 4};
    NetImpl() { register_module("layer", layer); }
  };
  const auto net = std::make_shared<NetImpl>();
  const auto f = [&](const Tensors& inputs) { return Tensors{net->layer->forward(inputs[0]).sum()}; };
  CapturedStep step(f, {.modules = {net}});
  const at::Tensor x = torch::ones({2, 8});
  for (int i = 0; i < 16; ++i) {
    if (i == 8) {
      EXPECT_GT(replays(step.stats()), 2u) << step.explain();
      net->layer = net->replace_module("layer", torch::nn::Linear(8, 4));
    }
    EXPECT_TRUE(same_bits(step.call({x})[0], f({x})[0].detach())) << i;
  }
}

TEST(CaptureOutside, GradientsWithAGraphAreRefused) {
  at::Tensor w = torch::ones({3}).requires_grad_();
  auto step = capture([&](at::Tensor x) {
    w.mutable_grad() = at::Tensor();
    at::Tensor loss = (w * w * x).sum();
    loss.backward({}, /*keep_graph=*/true, /*create_graph=*/true);
    return loss;
  });
  for (int i = 0; i < 8; ++i) step(torch::full({3}, i, torch::kFloat));
  EXPECT_EQ(replays(step.stats()), 0u) << step.explain();
  EXPECT_THAT(step.refusal(), HasSubstr("create_graph"));
  w.mutable_grad() = at::Tensor();
}

// Numbers by which a program changes parameters itself, in the ways that programs do so.
TEST(CaptureOutside, RatesOfHandWrittenStepsAreRefused) {
  using Update = std::function<void(at::Tensor&, const at::Tensor&)>;
  const double rate = 0.1;
  for (const Update& update : {Update([&](at::Tensor& w, const at::Tensor& g) { w -= rate * g; }),
                               Update([&](at::Tensor& w, const at::Tensor& g) { w.sub_(g, rate); }),
                               Update([&](at::Tensor& w, const at::Tensor& g) { w.copy_(w - rate * g); }),
                               Update([&](at::Tensor& w, const at::Tensor& g) { w.add_((-g) * rate); })}) {
    at::Tensor w = torch::ones({3}).requires_grad_();
    auto step = capture([&](at::Tensor x) {
      at::Tensor loss = (w * x).sum();
      at::Tensor g = torch::autograd::grad({loss}, {w})[0];
      const torch::NoGradGuard no_grad;
      update(w, g);
      return loss;
    });
    for (int i = 0; i < 8; ++i) step(torch::ones({3}));
    EXPECT_THAT(step.refusal(), HasSubstr("constant_numbers"));
  }
}

// A second optimizer, of which the step is not told.
TEST(CaptureOutside, NumbersOfAnotherOptimizerAreRefused) {
  Training training = small_mlp(adam());
  at::Tensor scale = torch::ones({}).requires_grad_();
  torch::optim::SGD other({scale}, torch::optim::SGDOptions(0.1));
  auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
  CapturedStep step(
      [&](const Tensors& inputs) {
        training.optimizer->zero_grad();
        other.zero_grad();
        at::Tensor loss = torch::mse_loss(net->forward(inputs[0]) * scale, inputs[1]);
        loss.backward();
        training.optimizer->step();
        other.step();
        return Tensors{loss};
      },
      {.optimizer = training.optimizer.get(), .modules = {training.model}});
  for (int i = 0; i < 8; ++i) step.call(training.inputs(i));
  EXPECT_THAT(step.refusal(), HasSubstr("give all of them by .optimizers"));
}

TEST(CaptureOutside, AStepThatIsCalledInAParallelRegion) {
  at::Tensor w = torch::rand({300, 300});
  const auto f = [&](at::Tensor x) { return x.mm(w).sum() * (at::in_parallel_region() ? 2 : 1); };
  auto step = capture(f);
  const at::Tensor x = torch::rand({4, 300});
  for (int i = 0; i < 8; ++i) step(x);
  at::parallel_for(0, 1, 1, [&](int64_t, int64_t) {
    const c10::impl::ExcludeDispatchKeyGuard none{c10::DispatchKeySet()};
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(step(x), f(x)));
  });
  EXPECT_TRUE(same_bits(step(x), f(x)));
}

}  // namespace
}  // namespace overdrive::test
