// Switching while backwards are under way, and the two engines inside each other.
#include "engine/engine.h"

#include "test/support/pch.h"

#include <atomic>
#include <functional>
#include <future>
#include <thread>

namespace {

using torch::autograd::Engine;
using Tensor = torch::Tensor;

Engine& stock() { return Engine::get_base_engine(); }
Engine& overdrive_engine() {
  overdrive::ScopedInstall scope;
  return Engine::get_default_engine();
}

// d(loss)/d(leaves) on one engine, whichever is the default.
void run_on(Engine& engine, const Tensor& loss) {
  engine.execute({torch::autograd::impl::gradient_edge(loss)}, {torch::ones_like(loss)},
                 /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true, {});
}

Tensor leaf() { return torch::ones({2}, torch::requires_grad()); }

// {x} --*3--> {y} --sum--> {loss}, with a hook on y. Hooks run with grad mode off; this may be in one.
void backward_with_hook(Engine& engine, const std::function<void()>& hook) {
  const torch::AutoGradMode on(true);
  Tensor x = leaf();
  Tensor y = x * 3;
  y.register_hook([&](const Tensor&) { hook(); });
  run_on(engine, y.sum());
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 3.0)));
}

uint64_t ours_ran() { return overdrive::stats().backwards; }

class Switch : public testing::Test {
 protected:
  void SetUp() override { overdrive::reset_stats(); }
  void TearDown() override { EXPECT_TRUE(overdrive::uninstall()); }
};

TEST_F(Switch, LetsABackwardFinishOnTheEngineThatBeganItWhenAHookUninstalls) {
  overdrive::install();
  bool called = false;
  backward_with_hook(Engine::get_default_engine(), [&] {
    called = true;
    EXPECT_TRUE(overdrive::uninstall());
    backward_with_hook(Engine::get_default_engine(), [] {});  // stock, inside ours
  });
  EXPECT_TRUE(called);
  EXPECT_EQ(ours_ran(), 1);
  EXPECT_FALSE(overdrive::installed());
}

TEST_F(Switch, LetsABackwardFinishOnTheEngineThatBeganItWhenAHookInstalls) {
  bool called = false;
  backward_with_hook(Engine::get_default_engine(), [&] {
    called = true;
    overdrive::install();
    EXPECT_EQ(ours_ran(), 0);
    backward_with_hook(Engine::get_default_engine(), [] {});  // ours, inside stock
  });
  EXPECT_TRUE(called);
  EXPECT_EQ(ours_ran(), 1);
}

TEST_F(Switch, LetsABackwardFinishOnTheEngineThatBeganItWhenAnotherThreadUninstalls) {
  overdrive::install();
  backward_with_hook(Engine::get_default_engine(),
                     [&] { EXPECT_TRUE(std::async(std::launch::async, overdrive::uninstall).get()); });
  EXPECT_EQ(ours_ran(), 1);
}

TEST_F(Switch, MayBeHammeredWhileOtherThreadsRunBackwards) {
  constexpr int kSwitches = 1000;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<uint64_t> ran{0};
  const auto train = [&] {
    while (!stop) {
      Tensor x = leaf();
      (x * 3).sum().backward();
      wrong += !torch::equal(x.grad(), torch::full({2}, 3.0));
      ++ran;
    }
  };
  std::thread first(train), second(train);
  for (int i = 0; i < kSwitches || ran < 200; ++i) {
    overdrive::install();
    if (i % 4 == 0) std::this_thread::yield();
    EXPECT_TRUE(overdrive::uninstall());
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(ours_ran(), ran);
}

TEST_F(Switch, MayComeFromSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) t % 2 == 0 ? overdrive::install() : void(overdrive::uninstall());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(overdrive::uninstall());
  EXPECT_EQ(&Engine::get_default_engine(), &stock());
}

TEST_F(Switch, AlternatesFiftyTimesInOneProcess) {
  Tensor x = leaf();
  for (int i = 0; i < 50; ++i) {
    {
      overdrive::ScopedInstall scope;
      (x * 2).sum().backward();
    }
    (x * 3).sum().backward();
  }
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 250.0)));
  EXPECT_EQ(ours_ran(), 50);
}

// Runs a backward on engines[0], in a hook of it one on engines[1], and so on; returns how many.
int nest(const std::vector<Engine*>& engines, size_t level = 0) {
  if (level == engines.size()) return 0;
  int inner = -1;
  backward_with_hook(*engines[level], [&] { inner = nest(engines, level + 1); });
  return inner + 1;
}

struct Nesting {
  const char* name;
  std::vector<bool> ours;  // from the outside in
};

class NestedEngines : public Switch, public testing::WithParamInterface<Nesting> {};

TEST_P(NestedEngines, AllFinishWithTheRightGradients) {
  std::vector<Engine*> engines;
  for (const bool ours : GetParam().ours) engines.push_back(ours ? &overdrive_engine() : &stock());
  EXPECT_EQ(nest(engines), static_cast<int>(engines.size()));
  EXPECT_EQ(ours_ran(), std::count(GetParam().ours.begin(), GetParam().ours.end(), true));
  EXPECT_EQ(nest(engines), static_cast<int>(engines.size())) << "the thread is as it was";
}

INSTANTIATE_TEST_SUITE_P(OnOneThread, NestedEngines,
                         testing::Values(Nesting{"StockInsideOurs", {true, true, true, false, false, false}},
                                         Nesting{"OursInsideStock", {false, false, false, true, true, true}},
                                         Nesting{"InTurnsFromOurs", {true, false, true, false, true, false}},
                                         Nesting{"InTurnsFromStock", {false, true, false, true, false, true}},
                                         Nesting{"StockBetweenOurs", {true, true, false, false, true, true}}),
                         [](const auto& row) { return row.param.name; });

// The order of leaves, all of equal rank, in a backward on `outer` whose first leaf runs one on `inner`, if
// any.
std::vector<int> order_of_leaves(Engine& outer, Engine* inner) {
  constexpr int kLeaves = 8;
  std::vector<Tensor> leaves;
  std::vector<int> order;
  for (int i = 0; i < kLeaves; ++i) {
    leaves.push_back(leaf());
    leaves.back().register_hook([&order, i, inner](const Tensor&) {
      order.push_back(i);
      if (order.size() == 1 && inner != nullptr) backward_with_hook(*inner, [] {});
    });
  }
  run_on(outer, torch::cat(leaves).sum());
  return order;
}

TEST_F(Switch, ABackwardOfStockDoesNotStirOurReadyNodes) {
  const std::vector<int> undisturbed = order_of_leaves(stock(), nullptr);
  const std::vector<int> stirred = order_of_leaves(stock(), &stock());
  ASSERT_NE(stirred, undisturbed) << "shows nothing";
  EXPECT_EQ(order_of_leaves(overdrive_engine(), nullptr), undisturbed);
  EXPECT_EQ(order_of_leaves(overdrive_engine(), &overdrive_engine()), stirred);
  EXPECT_EQ(order_of_leaves(overdrive_engine(), &stock()), undisturbed);
}

}  // namespace
