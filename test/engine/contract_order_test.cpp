// The order of work: highest sequence number first, ties as stock's heap breaks them.
// Seen through nodes and hooks.
#include "test/support/contract.h"
#include "test/support/gate.h"
#include "test/support/hooks.h"

#include <limits>
#include <random>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Order);

constexpr uint64_t kFirst = std::numeric_limits<uint64_t>::max();

FunctionNode::Body note(Timeline& timeline, const std::string& name, size_t edges) {
  return [&timeline, name, edges](variable_list&& in) {
    timeline.add(name);
    return variable_list(edges, in[0]);
  };
}

TYPED_TEST(Order, RunsLaterForwardOpsFirst) {
  // {x} --Sin--> {a} --+
  // {x} --Cos--> {b} --+--> {loss}
  Timeline timeline;
  auto x = leaf();
  auto a = x.sin();
  auto b = x.cos();
  add_tensor_hook(a, note_grad(timeline, "sin"));
  add_tensor_hook(b, note_grad(timeline, "cos"));
  (a + b).backward();
  EXPECT_EQ(timeline.events(), (Events{"cos 1", "sin 1"}));
}

TYPED_TEST(Order, FollowsTheSequenceNumberNotTheEdges) {
  Timeline timeline;
  auto low = make_node_at(10, "low", {}, note(timeline, "low", 0));
  auto high = make_node_at(30, "high", {}, note(timeline, "high", 0));
  auto middle = make_node_at(20, "middle", {}, note(timeline, "middle", 0));
  auto root = make_node_at(5, "root", {edge(low), edge(high), edge(middle)});
  run({.roots = {edge(root)}});
  EXPECT_EQ(timeline.events(), (Events{"high", "middle", "low"}));
}

TYPED_TEST(Order, LeavesGoFirst) {
  // AccumulateGrad has the highest number there is, so a leaf is done when its sum is ready.
  Timeline timeline;
  auto x = leaf();
  auto late = make_node("late", {}, note(timeline, "late", 0));
  auto root = make_node("root", {edge(late), accumulator(x)});
  set_post_accumulate_hook(x, note_tensor(timeline, "leaf"));
  run({.roots = {edge(root)}});
  EXPECT_EQ(timeline.events(), (Events{"leaf 1", "late"}));
}

// One parent, `count` children that share a number: the order is the heap's own.
std::string order_of_ties(int count, uint64_t number) {
  Timeline timeline;
  edge_list edges;
  for (int i = 0; i < count; ++i) {
    const auto name = "n" + std::to_string(i);
    edges.push_back(edge(make_node_at(number, name, {}, note(timeline, name, 0))));
  }
  auto root = make_node_at(1, "root", std::move(edges));
  run({.roots = {edge(root)}});
  return timeline.text();
}

TYPED_TEST(Order, TwoTiesKeepTheOrderOfTheEdges) {
  Timeline timeline;
  auto a = make_node_at(kFirst, "a", {}, note(timeline, "a", 0));
  auto b = make_node_at(kFirst, "b", {}, note(timeline, "b", 0));
  run({.roots = {edge(make_node_at(1, "root", {edge(a), edge(b)}))}});
  EXPECT_EQ(timeline.events(), (Events{"a", "b"}));
}

TYPED_TEST(Order, TiesAreBrokenAsTheStockHeapBreaksThem) {
  for (const uint64_t number : {uint64_t{7}, kFirst}) {
    for (int count = 1; count <= 40; ++count) {
      EXPECT_EQ(order_of_ties(count, number), on<StockEngine>([&] { return order_of_ties(count, number); }))
          << count << " nodes numbered " << number;
    }
  }
}

TYPED_TEST(Order, EqualRootsAreReadyInTheOrderGiven) {
  const auto order = [] {
    Timeline timeline;
    Backward call;
    for (int i = 0; i < 9; ++i) {
      const auto name = "r" + std::to_string(i);
      call.roots.push_back(edge(make_node_at(3, name, {}, note(timeline, name, 0))));
    }
    run(call);
    return timeline.text();
  };
  EXPECT_EQ(order(), on<StockEngine>(order));
}

// Layers of nodes with random edges and few numbers, so that ties are everywhere.
std::string order_of_random_graph(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Timeline timeline;
  std::vector<at::Tensor> leaves;
  std::vector<NodePtr> nodes;
  for (int i = 0; i < 4; ++i) {
    leaves.push_back(leaf());
    add_tensor_hook(leaves.back(), note_grad(timeline, "leaf" + std::to_string(i)));
    set_post_accumulate_hook(leaves.back(), note_tensor(timeline, "accumulated" + std::to_string(i)));
  }
  for (int i = 0; i < 25; ++i) {
    edge_list edges;
    for (size_t k = 0, count = 1 + pick(4); k < count; ++k) {
      const bool to_leaf = nodes.empty() || pick(3) == 0;
      edges.push_back(to_leaf ? accumulator(leaves[pick(4)]) : edge(nodes[pick(nodes.size())]));
    }
    const auto name = "n" + std::to_string(i);
    const auto count = edges.size();
    nodes.push_back(make_node_at(1 + pick(4), name, std::move(edges), note(timeline, name, count)));
    if (pick(3) == 0) add_pre_hook(nodes.back(), note_inputs(timeline, "pre of " + name));
    if (pick(3) == 0) add_post_hook(nodes.back(), note_outputs(timeline, "post of " + name));
    if (pick(3) == 0) add_tensor_pre_hook(nodes.back(), note_inputs(timeline, "tensor hook of " + name));
  }
  Backward call;
  for (int i = 0; i < 3; ++i) call.roots.push_back(edge(nodes[nodes.size() - 1 - pick(5)]));
  run(call);
  return timeline.text();
}

TYPED_TEST(Order, RandomGraphsFullOfTiesRunHookByHookAsInStock) {
  for (unsigned seed = 1; seed <= 120; ++seed) {
    ASSERT_EQ(order_of_random_graph(seed), on<StockEngine>([&] { return order_of_random_graph(seed); }))
        << "seed " << seed;
  }
}

TYPED_TEST(Order, ForwardsOfSeveralThreadsReuseNumbers) {
  // The counter of sequence numbers is per thread: three forwards, equal numbers.
  const auto order = [] {
    Timeline timeline;
    auto x = leaf(2);
    std::vector<at::Tensor> ends(3);
    for (int t = 0; t < 3; ++t) {
      on_threads(1, [&](int) {
        auto y = x;
        for (int i = 0; i < 5; ++i) {
          y = y * 1.5;
          add_tensor_hook(y, note_grad(timeline, "t" + std::to_string(t) + "." + std::to_string(i)));
        }
        ends[static_cast<size_t>(t)] = y;
      });
    }
    (ends[0] * ends[1] + ends[2]).backward();
    timeline.add(value_of(x.grad()));
    return timeline.text();
  };
  EXPECT_EQ(order(), on<StockEngine>(order));
}

TYPED_TEST(Order, ANestedBackwardFinishesBeforeTheOuterOneGoesOn) {
  Timeline timeline;
  auto inner = make_node_at(1, "inner", {}, note(timeline, "inner", 0));
  auto waiting = make_node_at(50, "waiting", {}, note(timeline, "waiting", 0));
  auto nesting = make_node_at(60, "nesting", {}, [&](variable_list&&) {
    run({.roots = {edge(inner)}});
    timeline.add("nested done");
    return variable_list{};
  });
  run({.roots = {edge(make_node_at(2, "root", {edge(waiting), edge(nesting)}))}});
  EXPECT_EQ(timeline.events(), (Events{"inner", "nested done", "waiting"}));
}

}  // namespace
}  // namespace overdrive::test
