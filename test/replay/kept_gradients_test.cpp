// A program may keep the gradients of a call, take them away from the parameters, and call again. Eager makes
// new ones then, and so does a replay.
#include "test/replay/replay_fixture.h"

#include <cstring>

namespace overdrive::test {
namespace {

// Keeps something of each gradient after each step, as it is then, in both trainings.
struct KeptGradients : testing::Test {
  using Keep = std::function<at::Tensor(const at::Tensor& gradient)>;

  std::string run(const SideBySide::Make& make, const Keep& keep, bool take_away = true) {
    SideBySide both(make);
    std::map<const Training*, std::vector<Tensors>> kept;
    const std::string text = both.run(24, [&](Training& training, int i) {
      auto& mine = kept[&training];
      const bool keeps = i % 5 != 4;
      if (!keeps) mine.clear();  // nobody holds what was before
      mine.emplace_back();
      for (const at::Tensor& parameter : training.model->parameters()) {
        if (parameter.grad().defined() && keeps) mine.back().push_back(keep(parameter.grad()));
        if (take_away) parameter.mutable_grad() = at::Tensor();
      }
      if (&training != &both.captured()) return;
      const auto& theirs = kept[&both.eager()];
      for (size_t k = 0; k < mine.size(); ++k) {
        for (size_t j = 0; j < mine[k].size(); ++j)
          EXPECT_TRUE(same_bits(mine[k][j], theirs[k][j]))
              << "before step " << i << ", kept " << k << ", " << j;
      }
    });
    EXPECT_GE(replays(both.step().stats()), 18u) << both.step().explain();
    return text;
  }

  static Training without_zeroing() {
    Training training = small_mlp(adam());
    auto* net = dynamic_cast<torch::nn::SequentialImpl*>(training.model.get());
    auto* optimizer = training.optimizer.get();
    training.step = [net, optimizer](const Tensors& inputs) {
      at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
      loss.backward();
      optimizer->step();
      return loss;
    };
    return training;
  }
};

TEST_F(KeptGradients, AreUnchangedByReplaysWhereTheStepMakesNewOnes) {
  EXPECT_EQ(run([] { return small_mlp(); }, [](const at::Tensor& g) { return g; }, /*take_away=*/false), "");
}

TEST_F(KeptGradients, AreUnchangedByReplaysWhereTheProgramTakesThemAway) {
  EXPECT_EQ(run(without_zeroing, [](const at::Tensor& g) { return g; }), "");
}

TEST_F(KeptGradients, AreUnchangedWhereAViewIsKept) {
  EXPECT_EQ(run(without_zeroing, [](const at::Tensor& g) { return g.view(-1); }), "");
  EXPECT_EQ(run([] { return small_mlp(); }, [](const at::Tensor& g) { return g.detach(); }, false), "");
}

TEST_F(KeptGradients, KeepTheirVersions) {
  torch::nn::Linear net(3, 1);
  auto step = capture([&](at::Tensor x) { net->forward(x).square().mean().backward(); });
  for (int i = 0; i < 8; ++i) {
    net->zero_grad();
    step(torch::ones({2, 3}) * i);
  }
  const at::Tensor kept = net->weight.grad();
  const int64_t version = kept._version();
  net->zero_grad();
  step(torch::ones({2, 3}));
  EXPECT_EQ(kept._version(), version);
  EXPECT_FALSE(net->weight.grad().is_same(kept));
  EXPECT_EQ(replays(step.stats()), 5u) << step.explain();
}

TEST_F(KeptGradients, AreWrittenInPlaceWhereNobodyHoldsThem) {
  torch::nn::Linear net(3, 1);
  auto step = capture([&](at::Tensor x) { net->forward(x).square().mean().backward(); });
  const void* memory = nullptr;
  for (int i = 0; i < 12; ++i) {
    net->zero_grad();
    step(torch::ones({2, 3}) * i);
    if (i > 6) {
      EXPECT_EQ(net->weight.grad().const_data_ptr(), memory);
    }
    memory = net->weight.grad().const_data_ptr();
  }
}

TEST_F(KeptGradients, AreAsTheyWereAfterAReplayThatIsTakenBack) {
  torch::nn::Linear net(3, 1);
  auto step = capture([&](at::Tensor x, at::Tensor index) {
    net->zero_grad();
    net->forward(x).square().mean().backward();
    return x.index_select(0, index);
  });
  const at::Tensor good = torch::tensor({0, 1}), bad = torch::tensor({0, 7});
  for (int i = 0; i < 8; ++i) step(torch::ones({2, 3}) * (i + 1), good);
  const at::Tensor kept = net->weight.grad(), values = kept.clone();
  EXPECT_NE(error_of([&] { step(torch::ones({2, 3}) * 30, bad); }), "");
  EXPECT_EQ(step.stats().undone, 1u) << step.explain();
  EXPECT_TRUE(same_bits(kept, values));
}

// A variable of the function's own has the gradient of each replay, as docs/guide/capturing.md says.
TEST_F(KeptGradients, OfAVariableOfTheFunctionAreThoseOfTheLastCall) {
  torch::nn::Linear net(3, 1);
  at::Tensor own;
  auto step = capture([&](at::Tensor x) {
    net->zero_grad();
    net->forward(x).square().mean().backward();
    own = net->weight.grad();
  });
  for (int i = 0; i < 12; ++i) {
    step(torch::ones({2, 3}) * i);
    EXPECT_TRUE(same_bits(own, net->weight.grad())) << i;
  }
  EXPECT_GT(replays(step.stats()), 6u) << step.explain();
}

// A parameter that is frozen keeps the gradient of a time when it was not, until somebody takes it away.
TEST(FrozenGradients, AreTakenAwayByReplays) {
  SideBySide both([] {
    Training training = small_mlp();
    auto* net = dynamic_cast<torch::nn::SequentialImpl*>(training.model.get());
    auto* optimizer = training.optimizer.get();
    training.step = [net, optimizer](const Tensors& inputs) {
      for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad().reset();
      at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
      loss.backward();
      optimizer->step();
      return loss;
    };
    return training;
  });
  const std::string text = both.run(100, [](Training& training, int i) {
    at::Tensor weight = training.model->parameters()[0];
    if (i % 10 == 9) weight.set_requires_grad(!weight.requires_grad());
    if (i % 10 == 4 && i > 40) weight.mutable_grad() = torch::ones_like(weight);
  });
  EXPECT_EQ(text, "") << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), 40u) << both.step().explain();
}

}  // namespace
}  // namespace overdrive::test
