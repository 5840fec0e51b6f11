// keep_graph, create_graph, and the release of what a node saved.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(GraphFlags);

constexpr auto kSecondTime =
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
    "you need to access saved tensors after calling backward.";

TYPED_TEST(GraphFlags, AKeptGraphCanRunAgain) {
  auto x = leaf(3);
  auto y = x * x;
  y.backward({}, true);
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(value_of(x.grad()), 18);
}

TYPED_TEST(GraphFlags, AReleasedGraphSaysThatItIsGone) {
  auto x = leaf(3);
  auto y = x * x;
  y.backward();
  EXPECT_EQ(message_of([&] { y.backward(); }), (Caught{"c10::Error", kSecondTime}));
  EXPECT_EQ(value_of(x.grad()), 6);
}

TYPED_TEST(GraphFlags, ANodeThatSavedNothingCanAlwaysRunAgain) {
  auto x = leaf();
  auto y = x + 1;
  y.backward();
  y.backward();
  EXPECT_EQ(value_of(x.grad()), 2);
}

TYPED_TEST(GraphFlags, ReleaseHappensForEachNodeRightAfterItRan) {
  Timeline timeline;
  const auto watched = [&](const std::string& name, edge_list edges) {
    const auto count = edges.size();
    auto node = make_node(name, std::move(edges), [&timeline, name, count](variable_list&& in) {
      timeline.add(name);
      return variable_list(count, in[0]);
    });
    as_function(node).on_will_release = [&timeline, name] { timeline.add("will release ", name); };
    as_function(node).on_release = [&timeline, name] { timeline.add("release ", name); };
    return node;
  };
  auto low = watched("low", {});
  auto top = watched("top", {edge(low)});
  run({.roots = {edge(top)}, .keep_graph = true});
  EXPECT_EQ(timeline.events(), (Events{"top", "low"}));
  timeline.clear();
  run({.roots = {edge(top)}});
  EXPECT_EQ(timeline.events(),
            (Events{"will release top", "top", "release top", "will release low", "low", "release low"}));
}

TYPED_TEST(GraphFlags, APrunedRunReleasesOnlyWhatRan) {
  Timeline timeline;
  auto x = leaf(), y = leaf();
  auto used = make_node("used", {accumulator(x)});
  auto unused = make_node("unused", {accumulator(y)});
  as_function(used).on_release = [&] { timeline.add("used"); };
  as_function(unused).on_release = [&] { timeline.add("unused"); };
  auto root = output_of(make_node("root", {edge(used), edge(unused)}));
  torch::autograd::grad({root}, {x});
  EXPECT_EQ(timeline.events(), (Events{"used"}));
}

TYPED_TEST(GraphFlags, ANodeThatThrowsIsNotReleased) {
  bool released = false;
  auto node = make_node("node", {}, [](variable_list&&) -> variable_list { throw std::runtime_error("no"); });
  as_function(node).on_release = [&] { released = true; };
  EXPECT_EQ(message_of([&] { run({.roots = {edge(node)}}); }).message, "no");
  EXPECT_FALSE(released);
}

TYPED_TEST(GraphFlags, ReleaseComesAfterThePostHooks) {
  Timeline timeline;
  auto node = make_node("node", {});
  add_post_hook(node, note_outputs(timeline, "post"));
  as_function(node).on_release = [&] { timeline.add("release"); };
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"post from 1", "release"}));
}

TYPED_TEST(GraphFlags, CreateGraphGivesGradientsThatHaveGradients) {
  auto x = leaf(2);
  auto first = torch::autograd::grad({x * x * x}, {x}, {}, true, true)[0];
  EXPECT_EQ(value_of(first), 12);
  ASSERT_TRUE(first.requires_grad());
  auto second = torch::autograd::grad({first}, {x}, {}, true, true)[0];
  EXPECT_EQ(value_of(second), 12);
  EXPECT_EQ(value_of(torch::autograd::grad({second}, {x})[0]), 6);
}

TYPED_TEST(GraphFlags, WithoutCreateGraphGradModeIsOffInNodesAndHooks) {
  for (const bool create : {false, true}) {
    std::vector<bool> seen;
    const auto look = [&] { seen.push_back(at::GradMode::is_enabled()); };
    auto x = leaf();
    add_tensor_hook(x, [&](const at::Tensor& grad) {
      look();
      return grad;
    });
    auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
      look();
      return in;
    });
    run({.roots = {edge(node)}, .keep_graph = true, .create_graph = create});
    EXPECT_EQ(seen, (std::vector<bool>{create, create}));
    EXPECT_TRUE(at::GradMode::is_enabled());
    x.mutable_grad().reset();
  }
}

TYPED_TEST(GraphFlags, TheCallersGradModeIsNotTheNodes) {
  auto x = leaf();
  bool in_node = true;
  auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
    in_node = at::GradMode::is_enabled();
    return in;
  });
  at::NoGradGuard no_grad;
  run({.roots = {edge(node)}, .create_graph = true});
  EXPECT_TRUE(in_node);
  EXPECT_FALSE(at::GradMode::is_enabled());
}

struct Collector : c10::WarningHandler {
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;
};

// Throws what it is told, as a program does that takes warnings for errors.
struct Thrower final : c10::WarningHandler {
  void process(const c10::Warning& warning) override { throw std::runtime_error(warning.msg()); }
};

// How many of three backwards failed because of the warning, before anything ran.
int failed_by_warnings() {
  Thrower thrower;
  c10::WarningUtils::WarningHandlerGuard guard(&thrower);
  int failed = 0;
  for (int i = 0; i < 3; ++i) {
    auto x = leaf(2);
    try {
      (x * x).backward({}, true, true);
    } catch (const std::runtime_error&) {
      failed += x.grad().defined() ? 0 : 1;
    }
  }
  return failed;
}

TYPED_TEST(GraphFlags, TheWarningAboutTheCycleComesAgainAfterAHandlerThatThrew) {
  // In a process of its own, because a warning that was given is not given again.
  if (std::getenv("OVERDRIVE_TEST_EMULATED"))
    GTEST_SKIP() << "an emulator that does not start programs (binfmt_misc)";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(failed_by_warnings()), testing::ExitedWithCode(3), "");
}

TYPED_TEST(GraphFlags, BackwardWithCreateGraphWarnsAboutTheCycleOnceAProcess) {
  // TORCH_WARN_ONCE in stock; always here, so that the test does not depend on who came first.
  c10::WarningUtils::set_warnAlways(true);
  Collector collector;
  c10::WarningUtils::WarningHandlerGuard guard(&collector);
  auto x = leaf(2);
  (x * x).backward({}, true, true);
  c10::WarningUtils::set_warnAlways(false);
  ASSERT_EQ(collector.messages.size(), 1u);
  EXPECT_THAT(collector.messages[0],
              testing::StartsWith("Using backward() with create_graph=True will create a "
                                  "reference cycle between the parameter and its gradient"));
  EXPECT_TRUE(x.grad().requires_grad());
  x.mutable_grad().reset();
  collector.messages.clear();
  torch::autograd::grad({x * x}, {x}, {}, true, true);
  EXPECT_TRUE(collector.messages.empty()) << "grad() makes no cycle";
}

TYPED_TEST(GraphFlags, GradientsAddUpWithAndWithoutAGraph) {
  auto x = leaf(2);
  (x * x).backward({}, true, true);
  const auto with_graph = x.grad();
  (x * 3).backward();
  EXPECT_EQ(x.grad().unsafeGetTensorImpl(), with_graph.unsafeGetTensorImpl());
  EXPECT_EQ(value_of(x.grad()), 7);
  (x * x).backward({}, true, true);
  EXPECT_NE(x.grad().unsafeGetTensorImpl(), with_graph.unsafeGetTensorImpl());
  EXPECT_EQ(value_of(x.grad()), 11);
  x.mutable_grad().reset();
}

}  // namespace
}  // namespace overdrive::test
