// Shadow mode: what agrees passes unseen, what differs is named, hooks are not called twice.
#include "engine/engine.h"

#include "test/support/pch.h"
#include "test/support/record_observer.h"
#include "test/support/sanitized.h"
#include "test/support/typed_node.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <pthread.h>

#include <functional>
#include <thread>

namespace {

using torch::autograd::Edge;
using torch::autograd::Engine;
using torch::autograd::variable_list;

class ShadowCheck : public testing::Test {
 protected:
  void SetUp() override {
    overdrive::Options options;
    options.check_every = 1;
    overdrive::install(options);
    overdrive::reset_stats();
  }
  void TearDown() override { overdrive::uninstall(); }
};

TEST_F(ShadowCheck, TouchesNoGradientOfABackwardThatHasHooks) {
  // Another thread may be adding to it.
  auto x = torch::ones({4}, torch::requires_grad());
  (x * 2).sum().backward();
  auto y = x * 3;
  y.register_hook([](const torch::Tensor& gradient) { return gradient; });
  const overdrive::test::RecordObserver observer(overdrive::test::RecordObserver::Scope::kAll);
  y.sum().backward();
  EXPECT_EQ(observer.count("aten::clone"), 0);
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({4}, 5.0)));
}

// Seen: a difference that was none. A sum into one gradient is one into the other, which copies are not.
TEST_F(ShadowCheck, LeavesOutGradientsThatShareMemory) {
  auto a = torch::ones({4}, torch::requires_grad()), b = torch::ones({4}, torch::requires_grad());
  a.mutable_grad() = torch::ones({4});
  b.mutable_grad() = a.grad().view({4});
  (a + b).sum().backward();
  EXPECT_TRUE(torch::equal(b.grad(), torch::full({4}, 3.0)));
  EXPECT_EQ(overdrive::stats().checked, 0u);
}

// Multiplies its gradient by how often it has run: no two runs agree.
struct Unsteady : torch::autograd::Node {
  int runs = 0;
  variable_list apply(variable_list&& gradients) override { return {gradients[0] * ++runs}; }
  std::string name() const override { return "Unsteady"; }
};

// Seen: a crash. A gradient that is known to be zero has no memory to compare.
TEST_F(ShadowCheck, ComparesGradientsThatAreKnownToBeZero) {
  struct Zero : torch::autograd::Node {
    variable_list apply(variable_list&& gradients) override {
      return {at::_efficientzerotensor(gradients[0].sizes(), gradients[0].options())};
    }
    std::string name() const override { return "Zero"; }
  };
  const auto x = torch::rand({4}, torch::requires_grad());
  auto y = x.detach() * 2;
  const auto node = overdrive::base::make_node<Zero>();
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(y, node);
  EXPECT_EQ(torch::autograd::grad({y.sum()}, {x})[0].sum().item<float>(), 0);
  EXPECT_EQ(overdrive::stats().checked, 1u);
}

TEST_F(ShadowCheck, PassesWhatAgreesAndLeavesGradientsAsTheyWere) {
  auto x = torch::rand({3, 4}, torch::requires_grad());
  auto w = torch::rand({4}, torch::requires_grad());
  w.mutable_grad() = torch::ones({4});
  void* const grad_memory = w.grad().data_ptr();
  (x * w).tanh().sum().backward();
  EXPECT_EQ(overdrive::stats().checked, 1u);
  EXPECT_EQ(w.grad().data_ptr(), grad_memory);
  const auto slope = 1 - (x * w).tanh().square();
  EXPECT_TRUE(torch::allclose(w.grad(), 1 + (slope * x).sum(0).detach()));
}

// Draws a number for each gradient.
struct Noisy : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override { return {gradients[0] * at::rand({})}; }
  std::string name() const override { return "Noisy"; }
};

TEST_F(ShadowCheck, BothRunsDrawTheSameNumbersOnce) {
  auto x = torch::ones({2, 2}, torch::requires_grad());
  auto node = overdrive::test::make_typed_node<Noisy>();
  node->add_input_metadata(x);
  node->add_next_edge(torch::autograd::impl::gradient_edge(x));
  torch::manual_seed(5);
  const at::Tensor first = at::rand({}), second = at::rand({});
  torch::manual_seed(5);
  Engine::get_default_engine().execute({Edge(node, 0)}, {torch::ones({2, 2})}, false, false, true);
  EXPECT_EQ(overdrive::stats().checked, 1u);
  EXPECT_TRUE(torch::equal(x.grad(), first.expand({2, 2})));
  EXPECT_TRUE(torch::equal(at::rand({}), second));
}

TEST_F(ShadowCheck, NamesLeafElementAndBothValuesOfTheFirstDifference) {
  auto x = torch::ones({2, 2}, torch::requires_grad());
  auto node = overdrive::test::make_typed_node<Unsteady>();
  node->add_input_metadata(x);
  node->add_next_edge(torch::autograd::impl::gradient_edge(x));
  auto gradient = torch::tensor({{0.f, 0.f}, {3.f, 0.f}});
  try {
    Engine::get_default_engine().execute({Edge(node, 0)}, {gradient}, false, false, true);
    FAIL() << "the difference went unnoticed";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(),
                testing::HasSubstr("the gradient of leaf 0 (CPUFloatType[2, 2]) differs at element [1, 0]: 3 "
                                   "with stock, 6 with Overdrive"));
  }
}

TEST_F(ShadowCheck, ComparesCapturedGradientsToo) {
  auto x = torch::rand({3}, torch::requires_grad());
  const auto grads = torch::autograd::grad({x.exp().sum()}, {x});
  EXPECT_TRUE(torch::equal(grads[0], x.exp().detach()));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(overdrive::stats().checked, 1u);
}

// A check that fails where the program is right is worse than none.
TEST_F(ShadowCheck, TakesTensorsOfEveryKind) {
  using namespace at::functionalization::impl;
  auto meta = torch::ones({2}, torch::device(torch::kMeta)).requires_grad_();
  (meta * 2).sum().backward();
  auto wrapper = to_functional_tensor(torch::ones({2})).requires_grad_();
  (wrapper * 3).sum().backward(to_functional_tensor(torch::ones({})));
  EXPECT_TRUE(torch::equal(from_functional_tensor(wrapper.grad()), torch::full({2}, 3.f)));
  auto nested =
      at::_nested_tensor_from_tensor_list({torch::ones({2, 4}), torch::ones({3, 4})}).requires_grad_();
  at::relu(nested).to_padded_tensor(0).sum().backward();
  auto table = torch::rand({5, 3}, torch::requires_grad());
  torch::embedding(table, torch::tensor({1, 4, 1}), -1, false, /*sparse=*/true).sum().backward();
  auto complex = torch::rand({3}, torch::dtype(torch::kComplexFloat).requires_grad(true));
  torch::real(complex.conj() * complex).sum().backward();
  torch::ones({0, 2}, torch::requires_grad()).sum().backward();
  EXPECT_EQ(overdrive::stats().checked, 6u);
}

TEST_F(ShadowCheck, DoesNotCallHooksTwice) {
  auto x = torch::ones({2}, torch::requires_grad());
  int calls = 0;
  x.register_hook([&](const torch::Tensor&) { ++calls; });
  (x * 2).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(overdrive::stats().checked, 0u);
  EXPECT_EQ(overdrive::stats().check_skipped, 1u);
}

TEST_F(ShadowCheck, LetsErrorsOfTheProgramThrough) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = (x * x).sum();
  y.backward();
  EXPECT_THROW(y.backward(), c10::Error);
}

// A node that runs a backward of its own, as a checkpoint does.
struct Nesting : torch::autograd::Node {
  std::function<void()> backward;
  variable_list apply(variable_list&& gradients) override {
    backward();
    return std::move(gradients);
  }
  std::string name() const override { return "Nesting"; }
};

void run_around(const torch::Tensor& x, std::function<void()> backward) {
  auto node = overdrive::test::make_typed_node<Nesting>();
  node->add_input_metadata(x);
  node->add_next_edge(torch::autograd::impl::gradient_edge(x));
  node->backward = std::move(backward);
  Engine::get_default_engine().execute({Edge(node, 0)}, {torch::ones_like(x)}, false, false, true);
}

// What was seen: the inner graph, made in the forward, was gone when ours came to it, and leaves that
// only the inner backward reaches got their gradient twice.
TEST_F(ShadowCheck, ABackwardInsideANodeCountsOnce) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto w = torch::rand({2}, torch::requires_grad());
  auto inner = (w * w).sum();
  run_around(x, [&] { inner.backward(); });
  EXPECT_TRUE(torch::equal(w.grad(), 2 * w.detach()));
  EXPECT_TRUE(torch::equal(x.grad(), torch::ones({2})));
  EXPECT_EQ(overdrive::stats().checked, 1u);
  EXPECT_THROW(inner.backward(), c10::Error);
}

TEST_F(ShadowCheck, GivesUpWhereABackwardInsideANodeHasHooks) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto w = torch::ones({2}, torch::requires_grad());
  int calls = 0;
  w.register_hook([&](const torch::Tensor&) { ++calls; });
  auto inner = (w * w).sum();
  run_around(x, [&] { inner.backward(); });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({2}, 2.f)));
  EXPECT_EQ(overdrive::stats().check_skipped, 1u);
}

// It took for ever: each level was run twice, so the last one 2^depth times.
TEST_F(ShadowCheck, GivesUpInADeepNest) {
  auto x = torch::zeros({1}, torch::requires_grad());
  const std::function<void(int)> nest = [&](int depth) {
    run_around(x, [&, depth] {
      if (depth > 0) nest(depth - 1);
    });
  };
  nest(100);
  EXPECT_EQ(x.grad().item<float>(), 101);
  EXPECT_EQ(overdrive::stats().check_skipped, 1u);
  nest(20);
  EXPECT_EQ(x.grad().item<float>(), 101 + 21);
  EXPECT_EQ(overdrive::stats().checked, 1u);
}

TEST_F(ShadowCheck, ChecksEveryNthCall) {
  overdrive::Options options;
  options.check_every = 3;
  overdrive::install(options);
  auto x = torch::ones({2}, torch::requires_grad());
  for (int i = 0; i < 9; ++i) (x * 2).sum().backward();
  EXPECT_EQ(overdrive::stats().checked, 3u);
}

struct EndsItsThread : torch::autograd::Node {
  variable_list apply(variable_list&&) override { overdrive::test::end_thread(); }
};

TEST_F(ShadowCheck, LetsAThreadEndInsideANode) {
  bool survived = false;
  std::thread([&] {
    auto node = overdrive::test::make_typed_node<EndsItsThread>();
    const auto root = torch::ones({1});
    node->add_input_metadata(root);
    Engine::get_default_engine().execute({Edge(node, 0)}, {root}, false, false, true, {});
    survived = true;
  }).join();
  EXPECT_FALSE(survived);
  auto x = torch::ones({4}, torch::requires_grad());
  (x * 2).sum().backward();
  EXPECT_EQ(overdrive::stats().checked, 1u);
}

}  // namespace
