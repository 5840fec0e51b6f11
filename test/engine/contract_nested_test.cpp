// A backward inside a node or hook of another: results, order, depth, threads, and what
// the checkpoint flag says.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"
#include "test/support/process.h"
#include "test/support/sanitized.h"

#include <ucontext.h>

#include <thread>
#include <vector>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Nested);

constexpr size_t kMiB = 1024 * 1024;

// Every node runs the next level's backward before it returns.
int descend(int levels, const std::function<void()>& at_bottom) {
  int entered = 0;
  std::function<void(int)> level = [&](int left) {
    auto node = make_node("level", {}, [&, left](variable_list&&) {
      ++entered;
      left > 1 ? level(left - 1) : at_bottom();
      return variable_list{};
    });
    run({.roots = {edge(node)}});
  };
  level(levels);
  return entered;
}

TYPED_TEST(Nested, ARealGraphInsideANodeOfARealGraph) {
  auto x = leaf(2), w = leaf(3);
  auto y = x * x;
  add_tensor_hook(y, [&](const at::Tensor& grad) {
    at::AutoGradMode grad_mode(true);
    (w * w).backward();
    return grad * w.grad();
  });
  y.backward();
  EXPECT_EQ(value_of(w.grad()), 6);
  EXPECT_EQ(value_of(x.grad()), 24);
}

TYPED_TEST(Nested, InsideEveryKindOfHook) {
  Timeline timeline;
  const auto nest = [&](const char* where) {
    auto inner = make_node("inner", {}, [&, where](variable_list&&) {
      timeline.add(where);
      return variable_list{};
    });
    run({.roots = {edge(inner)}});
  };
  const auto pre = [&](const char* where) {
    return [&nest, where](const variable_list& grads) {
      nest(where);
      return grads;
    };
  };
  auto x = leaf();
  set_post_accumulate_hook(x, [&](const at::Tensor&) { nest("post accumulate"); });
  auto node = make_node("node", {accumulator(x)});
  add_tensor_pre_hook(node, pre("tensor"));
  add_retains_grad_hook(node, 0, pre("retains"));
  add_pre_hook(node, pre("pre"));
  add_post_hook(node, [&](const variable_list& outputs, const variable_list&) {
    nest("post");
    return outputs;
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"tensor", "retains", "pre", "post", "post accumulate"}));
  EXPECT_EQ(value_of(x.grad()), 1);
}

TYPED_TEST(Nested, IntoTheSameLeafAddsUp) {
  auto x = leaf();
  auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
    run({.roots = {accumulator(x)}, .grads = {one(10)}});
    return in;
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(value_of(x.grad()), 11);
}

TYPED_TEST(Nested, GradInsideANodeDoesNotPruneTheOuterRun) {
  auto x = leaf(), y = leaf(3), z = leaf();
  auto side = make_node("side", {accumulator(z)});
  auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
    at::AutoGradMode grad_mode(true);
    return variable_list{in[0] * torch::autograd::grad({y * y}, {y})[0]};
  });
  run({.roots = {edge(make_node("root", {edge(node), edge(side)}))}});
  EXPECT_EQ(value_of(x.grad()), 6);
  EXPECT_EQ(value_of(z.grad()), 1);
  EXPECT_FALSE(y.grad().defined());
}

TYPED_TEST(Nested, WithReadyNodesOfTheOuterRunGoesInStocksOrder) {
  // Evaluations need not form a stack: both inner runs have work while the other waits.
  const auto scenario = [] {
    Timeline timeline;
    const auto note = [&](const std::string& name, size_t edges) {
      return [&timeline, name, edges](variable_list&& in) {
        timeline.add(name, " task ", torch::autograd::get_current_graph_task_id() >= 0);
        return variable_list(edges, in[0]);
      };
    };
    auto shared = make_node_at(5, "shared", {}, note("shared", 0));
    const auto eval = [&](const std::string& name, uint64_t number) {
      auto low = make_node_at(number, name + " low", {edge(shared)}, note(name + " low", 1));
      auto top = make_node_at(number + 100, name + " top", {edge(low), edge(shared)}, note(name + " top", 2));
      return make_node_at(number + 200, name, {}, [&timeline, name, top](variable_list&&) {
        timeline.add(name, " begins");
        run({.roots = {edge(top)}, .keep_graph = true});
        timeline.add(name, " ends");
        return variable_list{};
      });
    };
    auto first = eval("first", 30), second = eval("second", 20), third = eval("third", 30);
    run({.roots = {edge(make_node_at(1, "root", {edge(first), edge(second), edge(third)}))}});
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Nested, AThousandLevels) {
  if (!TypeParam::kOverdrive) this->allow_new_threads();  // stock: one for every 60 levels, for ever
  EXPECT_EQ(descend(1'000, [] {}), 1'000);
}

TYPED_TEST(Nested, DepthShowsInTheResultOfEachLevel) {
  if (!TypeParam::kOverdrive) this->allow_new_threads();
  auto x = leaf();
  descend(100, [&] { run({.roots = {accumulator(x)}, .grads = {one(7)}}); });
  EXPECT_EQ(value_of(x.grad()), 7);
}

TYPED_TEST(Nested, AnErrorFromTheBottomComesUpThroughEveryLevel) {
  // Not deeper than 60 for stock: its pool threads keep what was in their queues for ever.
  for (const int levels : {2, 30, TypeParam::kOverdrive ? 500 : 50}) {
    EXPECT_EQ(message_of([&] { descend(levels, [] { throw std::out_of_range("bottom"); }); }),
              (Caught{"std::out_of_range", "bottom"}));
    auto x = leaf(3);
    (x * x).backward();
    EXPECT_EQ(value_of(x.grad()), 6);
  }
}

TYPED_TEST(Nested, CheckpointIsValidUnlessSomeEnclosingRunIsPruned) {
  const auto valid = [] { return Engine::get_default_engine().is_checkpoint_valid(); };
  Timeline timeline;
  const auto probe = [&](const char* label, std::function<void()> nested = nullptr) {
    return [&timeline, valid, label, nested](variable_list&& in) {
      timeline.add(label, " ", valid());
      if (nested) nested();
      timeline.add(label, " again ", valid());
      return in;
    };
  };
  auto x = leaf(), y = leaf();
  EXPECT_TRUE(valid());
  auto plain = make_node("plain", {accumulator(x)}, probe("plain in pruned"));
  auto pruned = make_node("pruned", {accumulator(y)},
                          probe("pruned", [&] { run({.roots = {edge(plain)}, .keep_graph = true}); }));
  auto outer = make_node("outer", {accumulator(x)},
                         probe("outer", [&] { torch::autograd::grad({output_of(pruned)}, {y}, {}, true); }));
  run({.roots = {edge(outer)}});
  EXPECT_TRUE(valid());
  EXPECT_EQ(timeline.events(), (Events{"outer 1", "pruned 0", "plain in pruned 0", "plain in pruned again 0",
                                       "pruned again 0", "outer again 1"}));
}

TYPED_TEST(Nested, StockInsideOursAndOursInsideStock) {
  // Three levels, the engine changed at each.
  auto x = leaf(2);
  std::function<void(int)> level = [&](int left) {
    auto node = make_node("level", {accumulator(x)}, [&, left](variable_list&& in) {
      const auto deeper = [&] { level(left - 1); };
      if (left > 0) left % 2 ? on<StockEngine>(deeper) : on<Overdrive>(deeper);
      return in;
    });
    run({.roots = {edge(node)}});
  };
  level(3);
  EXPECT_EQ(value_of(x.grad()), 4);
}

// Ours only: stock would need a hundred and more threads and gigabytes of stacks.
class OverdriveNested : public EngineContract<Overdrive> {};

TEST_F(OverdriveNested, TenThousandLevelsOnAStackOf8MiBStartNoThread) {
  int entered = 0, threads_at_bottom = 0, threads_before = 0;
  on_stack_of(8 * kMiB, [&] {
    threads_before = thread_count();
    entered = descend(10'000, [&] { threads_at_bottom = thread_count(); });
  });
  EXPECT_EQ(entered, 10'000);
  EXPECT_LE(threads_at_bottom, threads_before);
}

// The inner backward begins on a fiber, inside of a hook, and is not over when the hook goes on.
//   outer: {x} --> {y, whose hook switches} --> {loss}
//   inner: {v}, {w, whose hook switches back} --> {loss}
TEST_F(OverdriveNested, OneThatIsLeftInTheMiddleByAFiberIsAnErrorThatSaysSo) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer has to be told of a fiber";
  struct Fibers {
    ucontext_t outer{}, inner{};
    Caught of_inner;
    bool over = false;
    void run_inner() {
      const at::AutoGradMode grad_mode(true);
      auto v = leaf(2), w = leaf(3);
      of_inner = message_of([&] {
        auto first = v * 2, second = w * 2;
        add_tensor_hook(second, [this](const at::Tensor& grad) {
          swapcontext(&inner, &outer);
          return grad;
        });
        (first + second).backward();
      });
      over = true;
      swapcontext(&inner, &outer);
    }
  };
  std::thread([] {  // what LibTorch keeps of the thread is not to be used again
    static Fibers* fibers;
    Fibers own;
    fibers = &own;
    std::vector<char> stack(kMiB);
    getcontext(&own.inner);
    own.inner.uc_stack = {stack.data(), 0, stack.size()};
    makecontext(
        &own.inner, [] { fibers->run_inner(); }, 0);
    auto x = leaf(2);
    const Caught of_outer = message_of([&] {
      auto y = x * 3;
      add_tensor_hook(y, [](const at::Tensor& grad) {
        swapcontext(&fibers->outer, &fibers->inner);
        return grad;
      });
      (y * 2).backward();
    });
    EXPECT_THAT(of_outer.message, testing::HasSubstr("switched to another fiber"));
    swapcontext(&own.outer, &own.inner);
    EXPECT_TRUE(own.over);
    EXPECT_EQ(own.of_inner.message, "");
  })
      .join();
}

TEST_F(OverdriveNested, AnErrorCrossesTenThousandLevels) {
  on_stack_of(8 * kMiB, [] {
    EXPECT_EQ(message_of([] { descend(10'000, [] { throw std::out_of_range("bottom"); }); }),
              (Caught{"std::out_of_range", "bottom"}));
  });
}

TEST_F(OverdriveNested, ManyDeepRunsGiveTheirStacksBack) {
  on_stack_of(kMiB, [] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(descend(500, [] {}), 500);
  });
}

}  // namespace
}  // namespace overdrive::test
