// grad() and backward(inputs=): which nodes run, what is captured, and what is said when
// an input is of no use. Every graph is drawn.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"

#include <random>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Pruning);

using torch::autograd::grad;

TYPED_TEST(Pruning, RunsOnlyWhatLeadsToAnInput) {
  // {loss} --+--> left --> {x}
  //          +--> right --> {y}
  Timeline timeline;
  auto x = leaf(), y = leaf();
  auto left = make_node("left", {accumulator(x)});
  auto right = make_node("right", {accumulator(y)});
  add_pre_hook(left, note_inputs(timeline, "left"));
  add_pre_hook(right, note_inputs(timeline, "right"));
  auto loss = output_of(make_node("loss", {edge(left), edge(right)}));
  EXPECT_EQ(value_of(grad({loss}, {x})[0]), 1);
  EXPECT_EQ(timeline.events(), (Events{"left 1"}));
  EXPECT_FALSE(x.grad().defined());
}

TYPED_TEST(Pruning, ANodeThatIsNotNeededStillCallsItsTensorHooksAndNothingElse) {
  // {loss} --> b --> a --> {x}; the gradient of b's input is wanted
  Timeline timeline;
  auto x = leaf();
  auto a = make_node("a", {accumulator(x)});
  auto b = make_node("b", {edge(a)});
  add_tensor_pre_hook(a, note_inputs(timeline, "tensor"));
  add_retains_grad_hook(a, 0, note_inputs(timeline, "retains"));
  add_pre_hook(a, note_inputs(timeline, "pre"));
  auto loss = output_of(b);
  EXPECT_EQ(value_of(grad({loss}, {output_of(a)})[0]), 1);
  EXPECT_EQ(timeline.events(), (Events{"tensor 1", "retains 1"}));
}

TYPED_TEST(Pruning, BackwardWithInputsAccumulatesIntoThoseOnly) {
  auto x = leaf(2), y = leaf(3);
  (x * y).backward({}, false, false, {{x}});
  EXPECT_EQ(value_of(x.grad()), 3);
  EXPECT_FALSE(y.grad().defined());
}

TYPED_TEST(Pruning, TheSameInputTwiceGivesTheSameGradientTwice) {
  auto x = leaf(2);
  const auto grads = grad({x * x}, {x, x});
  EXPECT_EQ(value_of(grads[0]), 4);
  EXPECT_EQ(value_of(grads[1]), 4);
  EXPECT_EQ(grads[0].unsafeGetTensorImpl(), grads[1].unsafeGetTensorImpl());
}

TYPED_TEST(Pruning, AnInputCanBeARoot) {
  auto x = leaf(2);
  auto y = x * 3;
  EXPECT_EQ(value_of(grad({y}, {y})[0]), 1);
  const auto grads = grad({y}, {y, x}, {one(5)}, true);
  EXPECT_EQ(value_of(grads[0]), 5);
  EXPECT_EQ(value_of(grads[1]), 15);
}

TYPED_TEST(Pruning, ALeafCanBeRootAndInput) {
  auto x = leaf();
  EXPECT_EQ(value_of(grad({x}, {x})[0]), 1);
  x.backward();
  EXPECT_EQ(value_of(x.grad()), 1);
}

TYPED_TEST(Pruning, ARootReachedFromAnotherRootGetsBothGradients) {
  // {z} --*5--> {y} --*3--> {x}, roots z and y
  auto x = leaf();
  auto y = x * 3;
  auto z = y * 5;
  const auto grads = grad({z, y}, {x, y}, {one(), one(100)});
  EXPECT_EQ(value_of(grads[0]), 3 * 105);
  EXPECT_EQ(value_of(grads[1]), 105);
}

TYPED_TEST(Pruning, TheSameRootTwiceCountsTwice) {
  auto x = leaf();
  auto y = x * 3;
  torch::autograd::backward({y, y}, {one(), one(10)});
  EXPECT_EQ(value_of(x.grad()), 33);
}

TYPED_TEST(Pruning, AnUnusedInputIsAnErrorUnlessAllowed) {
  auto x = leaf(), unused = leaf();
  auto y = x * 2;
  EXPECT_EQ(message_of([&] {
              grad({y}, {x, unused}, {}, true);
            }).message,
            "element 1of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior.");
  const auto grads = grad({y}, {x, unused}, {}, std::nullopt, false, true);
  EXPECT_EQ(value_of(grads[0]), 2);
  EXPECT_FALSE(grads[1].defined());
}

TYPED_TEST(Pruning, NoInputsIsAnError) {
  this->allow_forwarding();  // to be refused in stock's own words
  const auto scenario = [] {
    auto y = leaf() * 2;
    return message_of([&] { grad({y}, {}); });
  };
  EXPECT_THAT(scenario().message, testing::HasSubstr("grad requires non-empty inputs."));
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Pruning, AnInputThatNeedsNoGradientIsAnError) {
  auto y = leaf() * 2;
  EXPECT_EQ(message_of([&] { grad({y}, {one()}); }).message,
            "element 0 of the input tensors does not require grad");
}

TYPED_TEST(Pruning, ANodeBelowEveryInputIsCutByItsTopologicalNumber) {
  // Wanted: b's gradient. Below b a node throws when it runs, and has hooks that would note.
  Timeline timeline;
  auto bottom =
      make_node("bottom", {}, [](variable_list&&) -> variable_list { throw std::runtime_error("ran"); });
  add_tensor_pre_hook(bottom, note_inputs(timeline, "bottom"));
  auto b = make_node("b", {edge(bottom)});
  auto top = make_node("top", {edge(b), edge(bottom)});
  EXPECT_EQ(value_of(grad({output_of(top)}, {output_of(b)})[0]), 1);
  EXPECT_TRUE(timeline.events().empty());
}

TYPED_TEST(Pruning, EmptyExecInfoMeansEverythingRuns) {
  auto x = leaf();
  bool empty_in_backward = false, empty_in_grad = true;
  const auto probe = [&](bool* result) {
    return make_node("probe", {accumulator(x)}, [result](variable_list&& in) {
      *result = torch::autograd::get_current_graph_task_exec_info()->empty();
      return in;
    });
  };
  run({.roots = {edge(probe(&empty_in_backward))}});
  auto root = output_of(probe(&empty_in_grad));
  grad({root}, {x});
  EXPECT_TRUE(empty_in_backward);
  EXPECT_FALSE(empty_in_grad);
}

TYPED_TEST(Pruning, ExecInfoOfAPrunedRunNamesNeededNodesAndCaptures) {
  auto x = leaf(), y = leaf();
  auto used = make_node("used", {accumulator(x)});
  auto unused = make_node("unused", {accumulator(y)});
  std::string seen;
  auto root = make_node("root", {edge(used), edge(unused)}, [&](variable_list&& in) {
    const auto* info = torch::autograd::get_current_graph_task_exec_info();
    const auto of = [&](Node* node) {
      const auto it = info->find(node);
      return it == info->end() ? std::string("absent ")
                               : std::string(it->second.needed_ ? "needed" : "cut") +
                                     (it->second.captures_ ? "+captured " : " ");
    };
    seen = of(used.get()) + of(unused.get()) + of(accumulator(x).function.get());
    return variable_list(2, in[0]);
  });
  grad({output_of(root)}, {x});
  EXPECT_EQ(seen, "needed absent cut+captured ");
}

// A random net of nodes with three leaves: any subset of tensors as inputs, with repeats.
std::string prune_random_graph(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Timeline timeline;
  variable_list tensors;
  for (int i = 0; i < 3; ++i) tensors.push_back(leaf(i + 1));
  for (int i = 0; i < 12; ++i) {
    const auto& a = tensors[pick(tensors.size())];
    const auto& b = tensors[pick(tensors.size())];
    tensors.push_back(pick(2) ? a * b : a + b * 0.5);
    const auto label = "t" + std::to_string(i);
    if (pick(2)) add_tensor_hook(tensors.back(), note_grad(timeline, label));
    if (pick(3) == 0) add_pre_hook(tensors.back().grad_fn(), note_inputs(timeline, label + " pre"));
    if (pick(3) == 0) tensors.back().retain_grad();
  }
  variable_list roots, inputs, seeds;
  for (size_t i = 0, n = 1 + pick(2); i < n; ++i) {
    roots.push_back(tensors[tensors.size() - 1 - pick(4)]);
    seeds.push_back(one(static_cast<double>(i + 1)));
  }
  for (size_t i = 0, n = 1 + pick(4); i < n; ++i) inputs.push_back(tensors[pick(tensors.size())]);
  const auto error = message_of([&] {
    for (const auto& result : grad(roots, inputs, seeds, {}, pick(3) == 0, true)) {
      timeline.add("result ", value_of(result), " ", result.defined() && result.requires_grad());
    }
  });
  timeline.add(error);
  return timeline.text();
}

TYPED_TEST(Pruning, RandomSubsetsOfInputsGiveWhatStockGives) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    ASSERT_EQ(prune_random_graph(seed), on<StockEngine>([&] { return prune_random_graph(seed); }))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace overdrive::test
