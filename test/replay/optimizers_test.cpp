// Optimizers in a captured step: their state, options that change between the calls, and step counts that go
// on.
#include "test/replay/replay_fixture.h"

#include <torch/optim/schedulers/step_lr.h>

namespace overdrive::test {
namespace {

using namespace torch::optim;

template <typename Optimizer, typename Options>
MakeOptimizer with(Options options) {
  return [=](Tensors parameters) { return std::make_shared<Optimizer>(parameters, options); };
}

// Trains, changes the learning rate now and then, saves and loads the state in the middle.
template <typename Options>
void train(const char* name, const MakeOptimizer& optimizer) {
  SideBySide both([&] { return small_mlp(optimizer); });
  EXPECT_EQ(both.run(150), "") << name;
  EXPECT_EQ(both.step().refusal(), "") << name;
  EXPECT_EQ(both.run(30,
                     [](Training& training, int i) {
                       for (auto& group : training.optimizer->param_groups()) {
                         static_cast<Options&>(group.options()).lr(0.01 / (1 + i));
                       }
                     }),
            "")
      << name;
  EXPECT_GT(replays(both.step().stats()), 170u) << name << both.step().explain();
  EXPECT_EQ(both.step().stats().outdated, 0u) << name;
  // Another option that asks for the same operators, and one that asks for others.
  EXPECT_EQ(both.run(20,
                     [](Training& training, int i) {
                       auto& options = static_cast<Options&>(training.optimizer->param_groups()[0].options());
                       if (i == 5) options.weight_decay(0.01);
                       if (i == 15) options.weight_decay(0.02);
                     }),
            "")
      << name;
  EXPECT_EQ(both.step().stats().outdated, 1u) << name << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 180u) << name << both.step().explain();
}

TEST(CaptureOptimizers, Sgd) {
  train<SGDOptions>("plain", with<SGD>(SGDOptions(0.1)));
  train<SGDOptions>("momentum", with<SGD>(SGDOptions(0.1).momentum(0.9)));
  train<SGDOptions>("dampening", with<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.1)));
  train<SGDOptions>("nesterov", with<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true)));
}

TEST(CaptureOptimizers, Adam) {
  train<AdamOptions>("plain", with<Adam>(AdamOptions(0.01)));
  train<AdamOptions>("amsgrad", with<Adam>(AdamOptions(0.01).amsgrad(true)));
}

TEST(CaptureOptimizers, AdamW) {
  train<AdamWOptions>("plain", with<AdamW>(AdamWOptions(0.01).weight_decay(0)));
  train<AdamWOptions>("amsgrad", with<AdamW>(AdamWOptions(0.01).weight_decay(0).amsgrad(true)));
}

TEST(CaptureOptimizers, RmsProp) {
  train<RMSpropOptions>("plain", with<RMSprop>(RMSpropOptions(0.01)));
  train<RMSpropOptions>("centered", with<RMSprop>(RMSpropOptions(0.01).centered(true)));
  train<RMSpropOptions>("momentum", with<RMSprop>(RMSpropOptions(0.01).momentum(0.9)));
}

// step(closure): the loss is the closure's, and what it does is a part of the step.
TEST(CaptureOptimizers, Closures) {
  for (const MakeOptimizer& make : {sgd(), adam()}) {
    SideBySide both([&] {
      Training training = small_mlp(make);
      auto* const optimizer = training.optimizer.get();
      auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model);
      training.step = [=](const Tensors& inputs) {
        return optimizer->step([&] {
          optimizer->zero_grad();
          at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
          loss.backward();
          return loss;
        });
      };
      return training;
    });
    EXPECT_EQ(both.run(40), "") << both.step().explain();
    EXPECT_GT(replays(both.step().stats()), 30u) << both.step().explain();
  }
}

TEST(CaptureOptimizers, Adagrad) {
  train<AdagradOptions>("plain", with<Adagrad>(AdagradOptions(0.01)));
  train<AdagradOptions>("decay", with<Adagrad>(AdagradOptions(0.01).lr_decay(0.1)));
}

TEST(CaptureOptimizers, GroupsWithOptionsOfTheirOwn) {
  SideBySide both([] {
    Training training = small_mlp([](const Tensors& parameters) {
      const auto middle = parameters.begin() + 3;
      std::vector<OptimizerParamGroup> groups;
      groups.emplace_back(Tensors(parameters.begin(), middle), std::make_unique<AdamOptions>(0.01));
      groups.emplace_back(Tensors(middle, parameters.end()),
                          std::make_unique<AdamOptions>(AdamOptions(0.001).weight_decay(0.1)));
      return std::make_shared<Adam>(std::move(groups), AdamOptions(0.01));
    });
    return training;
  });
  EXPECT_EQ(both.run(200), "");
  EXPECT_GT(replays(both.step().stats()), 190u) << both.step().explain();
}

TEST(CaptureOptimizers, Scheduler) {
  std::map<Training*, std::unique_ptr<StepLR>> schedulers;
  SideBySide both([] { return small_mlp(with<Adam>(AdamOptions(0.01))); });
  EXPECT_EQ(both.run(200,
                     [&](Training& training, int) {
                       auto& scheduler = schedulers[&training];
                       if (!scheduler) scheduler = std::make_unique<StepLR>(*training.optimizer, 7, 0.5);
                       scheduler->step();
                     }),
            "");
  EXPECT_GT(replays(both.step().stats()), 190u) << both.step().explain();
}

// As of a generator and a critic in one step, each with rates of its own that change between the calls.
TEST(CaptureOptimizers, SeveralInOneStep) {
  const auto trained = [](bool captured) {
    torch::manual_seed(7);
    torch::nn::Linear critic(4, 1), maker(3, 4);
    Adam of_critic(critic->parameters(), AdamOptions(0.01));
    SGD of_maker(maker->parameters(), SGDOptions(0.1).momentum(0.9));
    const auto train = [&](at::Tensor noise, at::Tensor real) {
      of_critic.zero_grad();
      at::Tensor loss = critic(maker(noise).detach()).square().mean() - critic(real).mean();
      loss.backward();
      of_critic.step();
      of_maker.zero_grad();
      at::Tensor other = -critic(maker(noise)).mean();
      other.backward();
      of_maker.step();
      return std::make_tuple(loss, other);
    };
    auto step = capture(train, {.optimizers = {&of_critic, &of_maker}});
    for (int i = 0; i < 60; ++i) {
      const Tensors noise = batch_of(i, {5, 3}, {5, 4});
      captured ? step(noise[0], noise[1]) : train(noise[0], noise[1]);
      static_cast<AdamOptions&>(of_critic.param_groups()[0].options()).lr(0.01 / (1 + i));
      if (i == 30) static_cast<SGDOptions&>(of_maker.param_groups()[0].options()).lr(0.05);
    }
    if (captured) {
      EXPECT_GT(replays(step.stats()), 50u) << step.explain();
    }
    Tensors all = critic->parameters();
    for (const at::Tensor& p : maker->parameters()) all.push_back(p);
    for (size_t i = 0, count = all.size(); i < count; ++i) all.push_back(all[i].grad().clone());
    return all;
  };
  const Tensors eager = trained(false), captured = trained(true);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], captured[i])) << i;
}

TEST(CaptureOptimizers, StepCountsGoOn) {
  SideBySide both([] { return small_mlp(with<Adam>(AdamOptions(0.01))); });
  ASSERT_EQ(both.run(20), "");
  for (Training* training : {&both.eager(), &both.captured()}) {
    auto& state = training->optimizer->state();
    for (const at::Tensor& p : training->model->parameters()) {
      EXPECT_EQ(static_cast<AdamParamState&>(*state.at(p.unsafeGetTensorImpl())).step(), 20);
    }
  }
}

TEST(CaptureOptimizers, WithoutTheOptimizerItsNumbersVary) {
  Training training = small_mlp(with<Adam>(AdamOptions(0.01)));
  CapturedStep step([&](const Tensors& inputs) { return Tensors{training.step(inputs)}; },
                    {.constant_numbers = true});
  for (int i = 0; i < 12; ++i) step.call(training.inputs(i));
  EXPECT_EQ(replays(step.stats()), 0u);
  EXPECT_THAT(step.refusal(), testing::HasSubstr("varies"));
}

TEST(CaptureOptimizers, TwoStepsInOneCallAreRefused) {
  Training training = small_mlp();
  CapturedStep step(
      [&](const Tensors& inputs) {
        training.step(inputs);
        return Tensors{training.step(inputs)};
      },
      {.optimizer = training.optimizer.get(), .modules = {training.model}});
  for (int i = 0; i < 12; ++i) step.call(training.inputs(i));
  EXPECT_EQ(replays(step.stats()), 0u);
  EXPECT_THAT(step.refusal(), testing::HasSubstr("more than once"));
}

TEST(CaptureOptimizers, OthersAreRefused) {
  Training training =
      small_mlp([](Tensors parameters) { return std::make_shared<LBFGS>(parameters, LBFGSOptions(0.1)); });
  CapturedStep step([&](const Tensors& inputs) { return Tensors{inputs[0] * 2}; },
                    {.optimizer = training.optimizer.get()});
  for (int i = 0; i < 6; ++i) step.call(training.inputs(i));
  EXPECT_THAT(step.refusal(), testing::HasSubstr("SGD, Adam"));
}

}  // namespace
}  // namespace overdrive::test
