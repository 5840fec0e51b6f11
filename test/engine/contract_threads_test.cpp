// Backwards on several threads at once: separate graphs, a shared trunk, shared leaves.
// Gates instead of sleeps; sums are integers in float64, so a lost update shows exactly.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/gate.h"
#include "test/support/hooks.h"
#include "test/support/sanitized.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Threads);

constexpr int kThreads = 4;

const int kRepetitions = sanitized() ? 200 : 2'500;  // times kThreads backwards

at::Tensor integer(double value) { return torch::full({8}, value, torch::kDouble).requires_grad_(true); }

TYPED_TEST(Threads, SeparateGraphsDoNotMeet) {
  on_threads(kThreads, [](int index) {
    for (int i = 0; i < 200; ++i) {
      auto x = integer(index + 1);
      auto y = x;
      for (int k = 0; k < 10; ++k) y = y * 2 + x;
      y.sum().backward();
      ASSERT_EQ(value_of(x.grad()), 8 * (1024 + 1023));
    }
  });
}

TYPED_TEST(Threads, ASharedTrunkLosesNoUpdate) {
  //            +--> head 0 (thread 0)
  // {w} trunk -+--> head 1 (thread 1) ...   every thread runs its head many times
  auto w = integer(1), v = integer(1);
  auto trunk = (w * 3 + v) * 2;
  Gate gate(kThreads);
  on_threads(kThreads, [&](int index) {
    auto head = (trunk * (index + 1)).sum();
    gate.arrive_and_wait();
    for (int i = 0; i < kRepetitions; ++i) head.backward({}, /*retain_graph=*/true);
  });
  const double heads = 1 + 2 + 3 + 4;
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({8}, 6 * heads * kRepetitions, torch::kDouble)));
  EXPECT_TRUE(torch::equal(v.grad(), torch::full({8}, 2 * heads * kRepetitions, torch::kDouble)));
}

TYPED_TEST(Threads, SharedLeavesOfSeparateGraphsLoseNoUpdate) {
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < 5; ++i) leaves.push_back(integer(2));
  on_threads(kThreads, [&](int) {
    for (int i = 0; i < kRepetitions / 4; ++i) {
      at::Tensor sum = leaves[0] * 3;
      for (const auto& x : leaves) sum = sum + x;
      sum.sum().backward();
    }
  });
  const double runs = kThreads * (kRepetitions / 4);
  EXPECT_TRUE(torch::equal(leaves[0].grad(), torch::full({8}, 4 * runs, torch::kDouble)));
  EXPECT_TRUE(torch::equal(leaves[4].grad(), torch::full({8}, runs, torch::kDouble)));
}

TYPED_TEST(Threads, TwoBackwardsCanWaitForEachOther) {
  // Each thread's node meets the other's: an engine that ran them one after the other hangs.
  Gate gate(2);
  on_threads(2, [&](int) {
    auto x = leaf();
    auto node = make_node("meeting", {accumulator(x)}, [&](variable_list&& in) {
      gate.arrive_and_wait();
      return in;
    });
    run({.roots = {edge(node)}});
    EXPECT_EQ(value_of(x.grad()), 1);
  });
}

TYPED_TEST(Threads, RunOnTheThreadThatAsked) {
  on_threads(kThreads, [](int) {
    std::vector<std::thread::id> ids;
    auto x = leaf();
    add_tensor_hook(x, [&](const at::Tensor& grad) {
      ids.push_back(std::this_thread::get_id());
      return grad;
    });
    auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
      ids.push_back(std::this_thread::get_id());
      return in;
    });
    run({.roots = {edge(node)}});
    EXPECT_THAT(ids, testing::Each(std::this_thread::get_id()));
  });
}

TYPED_TEST(Threads, ABackwardOfAGraphMadeOnAnotherThread) {
  auto x = leaf(3);
  at::Tensor y;
  on_threads(1, [&](int) { y = x * x; });
  on_threads(1, [&](int) { y.backward(); });
  EXPECT_EQ(value_of(x.grad()), 6);
}

TYPED_TEST(Threads, NestedBackwardsOnSeveralThreads) {
  auto shared = integer(1);
  on_threads(kThreads, [&](int) {
    for (int i = 0; i < 50; ++i) {
      auto x = leaf();
      std::function<void(int)> level = [&](int left) {
        auto node = make_node("level", {accumulator(x)}, [&, left](variable_list&& in) {
          if (left > 0)
            level(left - 1);
          else {
            at::AutoGradMode grad_mode(true);
            (shared * 2).sum().backward();
          }
          return in;
        });
        run({.roots = {edge(node)}});
      };
      level(20);
      ASSERT_EQ(value_of(x.grad()), 21);
    }
  });
  EXPECT_TRUE(torch::equal(shared.grad(), torch::full({8}, 2.0 * kThreads * 50, torch::kDouble)));
}

TYPED_TEST(Threads, AReleasedTrunkIsAnErrorOnExactlyOneThreadAtMost) {
  // Without retain_graph two threads race for the saved tensors: one result or the error, no crash.
  for (int i = 0; i < 50; ++i) {
    auto w = integer(3);
    auto trunk = w * w;
    std::atomic<int> failed{0};
    on_threads(2, [&](int) {
      const auto error = message_of([&] { trunk.sum().backward(); });
      if (!error.type.empty()) {
        ++failed;
        EXPECT_THAT(error.message, testing::HasSubstr("a second time"));
      }
    });
    const double each = value_of(w.grad()) / 48;  // 8 elements, derivative 6
    EXPECT_EQ(each, 2 - failed);
  }
}

}  // namespace
}  // namespace overdrive::test
