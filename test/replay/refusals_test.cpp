// Steps that cannot be replayed run eagerly, with the same results, and say why.
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

using testing::HasSubstr;

// Calls the function and its captured form with the same inputs: equal results, no replay, and the reason.
template <typename F>
std::string refusal_of(F function, const Tensors& inputs = {torch::ones({3})}, CaptureOptions options = {}) {
  CapturedStep step([&](const Tensors& given) { return Tensors{function(given.at(0))}; }, std::move(options));
  for (int i = 0; i < 8; ++i) step.call(inputs);
  EXPECT_EQ(replays(step.stats()), 0u) << step.explain();
  return step.refusal();
}

TEST(CaptureRefusals, NumbersThatAreReadAndVary) {
  at::Tensor number = torch::zeros({});
  EXPECT_THAT(refusal_of([&](at::Tensor x) { return x * number.add_(1).item<float>(); }), HasSubstr("item()"));
}

TEST(CaptureRefusals, SizesThatDependOnDataAndVary) {
  at::Tensor count = torch::zeros({});
  EXPECT_THAT(refusal_of([&](at::Tensor x) {
                return x.expand({9, 3}).index({torch::arange(9) < count.add_(1)}).sum();
              }),
              HasSubstr("sizes"));
}

TEST(CaptureRefusals, HostNumbersThatVary) {
  int calls = 0;
  EXPECT_THAT(refusal_of([&](at::Tensor x) { return x * ++calls; }), HasSubstr("varies"));
  float number = 0;
  EXPECT_THAT(refusal_of([&](at::Tensor x) { return x * torch::tensor({number++}); }), HasSubstr("varies"));
}

TEST(CaptureRefusals, OtherOperatorsInEachCall) {
  int calls = 0;
  EXPECT_THAT(refusal_of([&](at::Tensor x) { return ++calls % 2 ? x.sin() : x.cos(); }),
              HasSubstr("must do the same"));
}

TEST(CaptureRefusals, Sparse) {
  at::Tensor table = torch::rand({5, 3}).requires_grad_();
  EXPECT_NE(refusal_of(
                [&](at::Tensor index) {
                  at::Tensor loss = torch::embedding(table, index, -1, false, true).sum();
                  loss.backward();
                  table.mutable_grad().reset();
                  return loss;
                },
                {torch::tensor({1, 2})}),
            "");
}

TEST(CaptureRefusals, NestedCapture) {
  auto inner = capture([](at::Tensor x) { return x + 1; });
  EXPECT_THAT(refusal_of([&](at::Tensor x) { return inner(x) * 2; }), HasSubstr("inside another one"));
}

TEST(CaptureRefusals, StateThatIsCarriedByAssignment) {
  at::Tensor h = torch::ones({3});
  EXPECT_NE(refusal_of([&](at::Tensor x) {
              h = (h * 0.5 + x).detach();
              return h * 1;
            }),
            "");
}

TEST(CaptureRefusals, TensorsThatAreKept) {
  Tensors kept;
  EXPECT_THAT(refusal_of([&](at::Tensor x) {
                kept.push_back(x * 2);
                return x + 1;
              }),
              HasSubstr("still held"));
}

TEST(CaptureRefusals, ResultsFromBeforeTheCall) {
  at::Tensor w = torch::ones({3});
  EXPECT_THAT(refusal_of([&](at::Tensor x) {
                w.add_(x);
                return w;
              }),
              HasSubstr("clone()"));
}

TEST(CaptureRefusals, WritesThroughPointers) {
  at::Tensor counter = torch::zeros({3});
  EXPECT_THAT(refusal_of([&](at::Tensor x) {
                counter.data_ptr<float>()[0] += 1;
                return x * counter;
              }),
              HasSubstr("pointer"));
  std::vector<float> buffer(3);
  EXPECT_THAT(refusal_of([&](at::Tensor x) {
                buffer[0] += 1;
                return x * torch::from_blob(buffer.data(), {3});
              }),
              HasSubstr("from_blob"));
}

TEST(CaptureRefusals, OtherMemory) {
  at::Tensor w = torch::ones({3});
  EXPECT_NE(refusal_of([&](at::Tensor x) {
              w.set_data(w.detach() * 1.5);
              return x * w;
            }),
            "");
  EXPECT_THAT(refusal_of([&](at::Tensor x) {
                at::Tensor y = x * 1;
                y.resize_({6});
                y.fill_(1);
                return y;
              }),
              HasSubstr("other memory"));
}

TEST(CaptureRefusals, WhatIsNotDeclared) {
  at::Tensor w = torch::ones({3}).requires_grad_();
  const auto step = [&](at::Tensor x) {
    at::Tensor loss = (w * x).sum();
    at::Tensor g = torch::autograd::grad({loss}, {w})[0];
    const torch::NoGradGuard no_grad;
    w.add_(g, -0.1);
    return loss;
  };
  EXPECT_THAT(refusal_of(step), HasSubstr(".optimizer"));
  EXPECT_THAT(refusal_of([](at::Tensor x) { return torch::dropout(x.clone().requires_grad_(), 0.5, true); }),
              HasSubstr(".modules"));
}

// Given one of the two, the step named numbers of the other as if there were no optimizer.
TEST(CaptureRefusals, TwoOptimizersInOneStep) {
  for (const bool adam : {true, false}) {
    torch::nn::Linear first(4, 4), second(4, 1);
    torch::optim::SGD sgd(first->parameters(), 0.1);
    torch::optim::Adam other_adam(second->parameters(), 0.1);
    torch::optim::SGD other_sgd(second->parameters(), 0.1);
    torch::optim::Optimizer& other = adam ? static_cast<torch::optim::Optimizer&>(other_adam) : other_sgd;
    bool inside = true;
    const auto train = [&](at::Tensor x) {
      sgd.zero_grad();
      other.zero_grad();
      at::Tensor loss = second(first(x)).square().mean();
      loss.backward();
      sgd.step();
      if (inside) other.step();
      return loss;
    };
    auto step = capture(train, {.optimizer = &sgd});
    for (int i = 0; i < 8; ++i) step(torch::randn({3, 4}));
    EXPECT_THAT(step.refusal(), HasSubstr("give all of them by .optimizers"));
    // As it says.
    auto both = capture(train, {.optimizers = {&sgd, &other}});
    for (int i = 0; i < 8; ++i) both(torch::randn({3, 4}));
    EXPECT_EQ(replays(both.stats()), 4u) << both.explain();
    inside = false;
    auto one = capture(train, {.optimizer = &sgd});
    for (int i = 0; i < 8; ++i) {
      one(torch::randn({3, 4}));
      other.step();
    }
    EXPECT_EQ(replays(one.stats()), 4u) << one.explain();
  }
}

TEST(CaptureRefusals, InputsThatRequireAGradient) {
  auto inside = capture([](at::Tensor x) {
    x.requires_grad_();
    return (x * x).sum();
  });
  for (int i = 0; i < 6; ++i) inside(torch::ones({3}));
  EXPECT_THAT(inside.refusal(), HasSubstr("detach()"));
  auto step = capture([](at::Tensor x) { return x * 2; });
  for (int i = 0; i < 6; ++i) step(torch::ones({3}).requires_grad_() * 2);
  EXPECT_EQ(step.stats().eager, 6u);
  EXPECT_THAT(step.refusal(), HasSubstr("has a graph"));
  auto leaf = capture([](at::Tensor x) { return torch::autograd::grad({(x * x).sum()}, {x})[0]; });
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = torch::full({3}, i).to(at::kFloat).requires_grad_();
    EXPECT_TRUE(same_bits(leaf(x), 2 * x.detach())) << i;
    EXPECT_FALSE(x.grad().defined());
  }
  EXPECT_EQ(replays(leaf.stats()), 4u) << leaf.refusal();
  auto leaves = capture([](at::Tensor x) {
    (x * x).sum().backward();
    return x.detach() * 2;
  });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = torch::ones({3}).requires_grad_();
    leaves(x);
    EXPECT_TRUE(same_bits(x.grad(), torch::full({3}, 2.0f)));
  }
  EXPECT_THAT(leaves.refusal(), HasSubstr("leaves a gradient on an input"));
}

TEST(CaptureRefusals, AnErrorOfTheFunctionPasses) {
  auto step = capture([](at::Tensor x) { return x.mm(torch::ones({5, 5})); });
  for (int i = 0; i < 5; ++i) EXPECT_THROW(step(torch::ones({3, 3})), c10::Error);
}

}  // namespace
}  // namespace overdrive::test
