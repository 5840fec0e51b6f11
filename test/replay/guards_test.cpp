// What a program may do between two calls: each change is noticed, or makes no difference.
#include "test/replay/replay_fixture.h"
#include "test/support/child.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

namespace overdrive::test {
namespace {

using testing::HasSubstr;

// Runs until replays begin, changes something on both sides once, and runs on.
struct CaptureGuards : testing::Test {
  void change(SideBySide& both, const SideBySide::Between& action) {
    ASSERT_EQ(both.run(8), "");
    ASSERT_GT(replays(both.step().stats()), 2u) << both.step().explain();
    const CaptureStats before = both.step().stats();
    EXPECT_EQ(both.run(12,
                       [&](Training& training, int i) {
                         if (i == 2) action(training, i);
                       }),
              "");
    replayed = replays(both.step().stats()) - replays(before);
    outdated = both.step().stats().outdated - before.outdated;
    explained = both.step().explain();
  }

  uint64_t replayed = 0;
  uint64_t outdated = 0;
  std::string explained;
};

TEST_F(CaptureGuards, ValuesCopiedIntoParameters) {
  SideBySide both([] { return small_mlp(); });
  change(both, [](Training& training, int) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& p : training.model->parameters()) p.copy_(p * 0.5);
  });
  EXPECT_EQ(replayed, 12u);
}

TEST_F(CaptureGuards, ParametersWithOtherMemory) {
  SideBySide both([] { return small_mlp(); });
  change(both, [](Training& training, int) {
    for (at::Tensor& p : training.model->parameters()) p.set_data(p.detach() * 0.5);
  });
  EXPECT_EQ(outdated, 1u) << explained;
  EXPECT_GT(replayed, 6u);
}

TEST_F(CaptureGuards, ParametersThatStopRequiringAGradient) {
  SideBySide both([] { return small_mlp(); });
  change(both, [](Training& training, int) { training.model->parameters()[0].set_requires_grad(false); });
  EXPECT_THAT(explained, HasSubstr("program 1"));
}

TEST_F(CaptureGuards, GradientsThatAreReplaced) {
  SideBySide both([] { return small_mlp(sgd(), false); });
  change(both, [](Training& training, int) {
    at::Tensor p = training.model->parameters()[0];
    p.mutable_grad() = torch::ones_like(p);
  });
  EXPECT_EQ(outdated, 1u) << explained;
}

TEST_F(CaptureGuards, GradientsThatAreTakenAway) {
  for (const bool set_to_none : {true, false}) {
    SideBySide both([&] { return small_mlp(sgd(), set_to_none); });
    change(both, [](Training& training, int) { training.optimizer->zero_grad(true); });
    EXPECT_TRUE(outdated >= 1 || explained.find("program 1") != explained.npos) << explained;
    EXPECT_GT(replayed, 4u) << explained;
  }
}

TEST_F(CaptureGuards, GradientsThatAreZeroed) {
  SideBySide both([] { return small_mlp(); });
  change(both, [](Training& training, int) { training.optimizer->zero_grad(false); });
  EXPECT_EQ(replayed, 12u) << explained;
}

TEST_F(CaptureGuards, EvaluationBetweenSteps) {
  SideBySide both([] { return small_mlp(); });
  const auto evaluate = [](Training& training, int i) {
    const torch::NoGradGuard no_grad;
    training.model->eval();
    std::dynamic_pointer_cast<torch::nn::SequentialImpl>(training.model)->forward(training.inputs(i)[0]);
    training.model->train();
  };
  EXPECT_EQ(both.run(8, evaluate), "");
  change(both, evaluate);
  EXPECT_EQ(replayed, 12u) << explained;
}

TEST_F(CaptureGuards, ModeOfTheModule) {
  SideBySide both([] {
    using namespace torch::nn;
    return train_sequential(Sequential(Linear(8, 16), Dropout(0.3), Tanh(), Linear(16, 4)), sgd(), {5, 8},
                            {5, 4});
  });
  change(both, [](Training& training, int) { training.model->eval(); });
  EXPECT_GT(replayed, 6u) << explained;
  change(both, [](Training& training, int) { training.model->train(); });
  EXPECT_GT(replayed, 6u) << explained;
}

TEST_F(CaptureGuards, SizesOfTheInputs) {
  SideBySide both([] {
    Training training = small_mlp();
    training.inputs = [](int i) { return batch_of(i, {i % 3 == 2 ? 3 : 5, 8}, {i % 3 == 2 ? 3 : 5, 4}); };
    return training;
  });
  EXPECT_EQ(both.run(60), "");
  EXPECT_GT(replays(both.step().stats()), 50u) << both.step().explain();
  EXPECT_EQ(both.step().stats().outdated, 0u);
}

TEST_F(CaptureGuards, MoreSetsOfSizesThanPrograms) {
  SideBySide both(
      [] {
        Training training = small_mlp();
        training.inputs = [](int i) { return batch_of(i, {1 + i % 5, 8}, {1 + i % 5, 4}); };
        return training;
      },
      {.programs = 2});
  EXPECT_EQ(both.run(50), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("already has 2 programs"));
  EXPECT_GE(both.step().stats().eager, 30u);
}

TEST_F(CaptureGuards, TypeStridesAndPlaceOfTheInputs) {
  at::Tensor w = torch::ones({4});
  const auto f = [&](at::Tensor x) { return (x.to(torch::kFloat) * w).sum(0); };
  auto step = capture(f);
  const at::Tensor base = torch::rand({4, 4});
  for (const at::Tensor& x : {base, base.t(), base.to(torch::kDouble), base.slice(0, 1),
                              base.reshape(-1).slice(0, 1, 9).reshape({2, 4})}) {
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(same_bits(step(x), f(x)));
  }
  EXPECT_GE(replays(step.stats()), 10u) << step.explain();
}

TEST_F(CaptureGuards, WatchedNumbers) {
  double rate = 0.5;
  int mode = 0;
  const auto f = [&](at::Tensor x) { return mode ? x * rate : x + rate; };
  auto step = capture(f);
  step.watch(&rate);
  step.watch(&mode);
  const at::Tensor x = torch::rand({3});
  for (int i = 0; i < 40; ++i) {
    if (i == 10) rate = 0.25;
    if (i == 20) mode = 1;
    if (i == 30) rate = 0.5;
    EXPECT_TRUE(same_bits(step(x), f(x))) << i;
  }
  EXPECT_GE(replays(step.stats()), 20u) << step.explain();
}

// Settings of the thread and of LibTorch: each is part of what a program is for.
template <typename Set, typename Unset>
void with_setting(const char* name, Set set, Unset unset) {
  at::Tensor w = torch::rand({4, 4}).requires_grad_();
  const auto f = [&](at::Tensor x) {
    at::Tensor y = (x.mm(w.detach()) * torch::ones({4})).sum();
    return y * (at::GradMode::is_enabled() ? 1 : 2) + at::get_num_threads();
  };
  auto step = capture(f);
  const at::Tensor x = torch::rand({4, 4});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(same_bits(step(x), f(x))) << name;
    set();
    for (int i = 0; i < 6; ++i)
      EXPECT_TRUE(same_bits(step(x).to(torch::kDouble), f(x).to(torch::kDouble))) << name;
    unset();
  }
  EXPECT_GT(replays(step.stats()), 6u) << name << step.explain();
}

TEST_F(CaptureGuards, SettingsOfTheThread) {
  with_setting(
      "grad mode", [] { at::GradMode::set_enabled(false); }, [] { at::GradMode::set_enabled(true); });
  const int threads = at::get_num_threads();
  with_setting(
      "threads", [&] { at::set_num_threads(threads + 1); }, [&] { at::set_num_threads(threads); });
  with_setting(
      "default type", [] { at::set_default_dtype(caffe2::TypeMeta::Make<double>()); },
      [] { at::set_default_dtype(caffe2::TypeMeta::Make<float>()); });
  with_setting(
      "deterministic", [] { at::globalContext().setDeterministicAlgorithms(true, false); },
      [] { at::globalContext().setDeterministicAlgorithms(false, false); });
  with_setting(
      "anomaly mode", [] { torch::autograd::AnomalyMode::set_enabled(true); },
      [] { torch::autograd::AnomalyMode::set_enabled(false); });
  with_setting(
      "denormals", [] { at::globalContext().setFlushDenormal(true); },
      [] { at::globalContext().setFlushDenormal(false); });
  with_setting(
      "autocast", [] { at::autocast::set_autocast_enabled(at::kCPU, true); },
      [] {
        at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCPU, false);
      });
  std::optional<c10::InferenceMode> outer;
  with_setting(
      "inference mode", [&] { outer.emplace(); }, [&] { outer.reset(); });
  {
    const c10::InferenceMode inference;
    auto step = capture([](at::Tensor x) { return x * 2; });
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(torch::ones({2}))[0].item<float>(), 2);
  }
}

// The second thread waits inside of its call until the first one has come back from a whole one.
TEST_F(CaptureGuards, ASecondThreadRunsTheFunction) {
  std::promise<void> inside, over;
  CapturedStep step(
      [&](const Tensors& inputs) {
        if (inputs[0].numel() == 3) {
          inside.set_value();
          over.get_future().wait();
        }
        return Tensors{inputs[0] + 1};
      },
      {});
  at::Tensor slow;
  std::thread other([&] { slow = step.call({torch::ones({3})})[0]; });
  inside.get_future().wait();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step.call({torch::ones({2}) * i})[0][0].item<float>(), i + 1);
  EXPECT_FALSE(step.would_replay({torch::ones({2})}));
  EXPECT_NE(error_of([&] { step.reset(); }).find("while a call of it was under way"), std::string::npos);
  over.set_value();
  other.join();
  EXPECT_EQ(slow[2].item<float>(), 2);
  EXPECT_EQ(step.stats().calls, 4u);
  EXPECT_EQ(step.stats().eager, 4u);
  EXPECT_NE(step.explain().find("3 more calls ran eagerly"), std::string::npos) << step.explain();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step.call({torch::ones({2}) * i})[0][0].item<float>(), i + 1);
  EXPECT_EQ(replays(step.stats()), 2u) << step.explain();
}

TEST_F(CaptureGuards, ThreadsThatCallAtOnceHaveEagersResults) {
  CapturedStep step(
      [](const Tensors& inputs) { return Tensors{(inputs[0].sin() * 2 + inputs[0].sum()).tanh()}; }, {});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < 300; ++i) {
        const at::Tensor x = torch::full({4, 5}, 0.01 * i + k);
        wrong += same_bits(step.call({x})[0], (x.sin() * 2 + x.sum()).tanh()) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(step.stats().calls, 900u);
  EXPECT_GT(replays(step.stats()), 0u) << step.explain();
}

// The discriminator of a generator's step is frozen in every second call, or in six of twelve.
TEST_F(CaptureGuards, AHalfThatIsFrozenInTurnHasARecordingForEachState) {
  const auto make = [] {
    using namespace torch::nn;
    Sequential whole(Linear(8, 6), Tanh(), Linear(6, 4));
    Training training{.model = whole.ptr(), .optimizer = sgd()(whole[0]->parameters())};
    training.step = [whole, optimizer = training.optimizer.get()](const Tensors& inputs) mutable {
      optimizer->zero_grad();
      at::Tensor loss = whole->forward(inputs[0]).mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
    training.inputs = [](int i) { return batch_of(i, {5, 8}, {5, 4}); };
    return training;
  };
  for (const int period : {1, 2, 3, 6}) {
    SideBySide both(make);
    ASSERT_EQ(both.run(60,
                       [&](Training& training, int i) {
                         for (at::Tensor& each : training.model->children()[2]->parameters())
                           each.requires_grad_(i / period % 2 == 1);
                       }),
              "");
    EXPECT_GE(replays(both.step().stats()), 60u - 24u) << period << both.step().explain();
  }
}

TEST_F(CaptureGuards, SizesThatComeInACycleAreAllReplayed) {
  CapturedStep step([](const Tensors& inputs) { return Tensors{inputs[0].sin() * 2}; }, {});
  for (int i = 0; i < 1000; ++i) step.call({torch::ones({1 + i % 100})});
  EXPECT_EQ(step.refusal(), "");
  EXPECT_EQ(replays(step.stats()), 600u) << step.refusal();
}

TEST_F(CaptureGuards, SizesThatNeverComeAgainAreToldAndNotRecorded) {
  CapturedStep step([](const Tensors& inputs) { return Tensors{inputs[0].sin() * 2}; }, {});
  for (int i = 0; i < 600; ++i) step.call({torch::ones({1 + i})});
  EXPECT_EQ(step.stats().recorded, 0u);
  EXPECT_THAT(step.refusal(), HasSubstr("have been new in very many calls in turn"));
  for (int i = 0; i < 520; ++i) step.call({torch::ones({4})});
  EXPECT_GT(replays(step.stats()), 80u) << step.explain();
}

// Recorded on one thread and replayed on others, while another step does the same.
TEST_F(CaptureGuards, EachStepOnAThreadOfItsOwn) {
  constexpr size_t kCalls = 60;
  std::vector<Training> eager, captured;
  for (int i = 0; i < 2; ++i) eager.push_back(small_mlp(adam())), captured.push_back(small_mlp(adam()));
  std::vector<Tensors> inputs;
  for (size_t i = 0; i < kCalls; ++i) inputs.push_back(eager[0].inputs(static_cast<int>(i)));
  std::vector<CapturedStep> steps;
  for (size_t i = 0; i < 2; ++i) {
    for (size_t k = 0; k < eager[i].everything().size(); ++k) {
      const torch::NoGradGuard no_grad;
      captured[i].everything()[k].copy_(eager[i].everything()[k]);
    }
    steps.emplace_back([&, i](const Tensors& in) { return Tensors{captured[i].step(in)}; },
                       CaptureOptions{.optimizer = captured[i].optimizer.get()});
  }
  for (size_t begin = 0; begin < kCalls; begin += 20) {
    std::vector<std::thread> threads;
    for (CapturedStep& step : steps) {
      threads.emplace_back([&inputs, &step, begin] {
        for (size_t i = begin; i < begin + 20; ++i) step.call(inputs[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (size_t i = 0; i < 2; ++i) {
    for (const Tensors& in : inputs) eager[i].step(in);
    for (size_t k = 0; k < eager[i].everything().size(); ++k) {
      EXPECT_TRUE(same_bits(eager[i].everything()[k], captured[i].everything()[k])) << k;
    }
    EXPECT_EQ(replays(steps[i].stats()), kCalls - 4) << steps[i].explain();
  }
}

TEST_F(CaptureGuards, AChildProcessGoesOn) {
  OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN();
  SideBySide both([] { return small_mlp(adam()); });
  ASSERT_EQ(both.run(8), "");
  EXPECT_TRUE(holds_in_a_child([&] {
    at::set_num_threads(1);
    return both.run(10).empty();
  }));
  EXPECT_EQ(both.run(10), "");
  EXPECT_EQ(both.step().stats().outdated, 0u) << both.step().explain();
}

}  // namespace
}  // namespace overdrive::test
