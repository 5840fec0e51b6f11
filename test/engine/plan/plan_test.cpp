// The tables of a plan, for graphs that are drawn above each test. Nothing runs.
#include "engine/plan/plan.h"
#include "test/support/graph.h"

namespace overdrive::engine {
namespace {

using test::accumulator;
using test::edge;
using test::leaf;
using test::make_node;

class PlanTest : public testing::Test {
 protected:
  void build(const base::NodePtr& root, const base::edge_list& outputs = {}, bool accumulate_grad = true) {
    plan.clear();
    plan.build({root.get(), false, outputs, accumulate_grad});
  }
  uint32_t number(const base::NodePtr& node) const { return plan.find(node.get()); }
  const PlannedNode& of(const base::NodePtr& node) const { return plan.nodes[number(node)]; }

  Plan plan;
};

TEST_F(PlanTest, HasEachNodeOnceAndCountsTheEdgesThatLeadToIt) {
  // {root} --+--> left --+--> {x}
  //          +--> right -+
  auto x = leaf();
  const base::NodePtr sink = accumulator(x).function;
  auto left = make_node("left", {edge(sink)});
  auto right = make_node("right", {edge(sink)});
  auto root = make_node("root", {edge(left), edge(right)});
  build(root);
  ASSERT_EQ(plan.nodes.size(), 4);
  EXPECT_EQ(number(root), 0);
  EXPECT_EQ(of(root).waiting, 0);
  EXPECT_EQ(of(left).waiting, 1);
  EXPECT_EQ(of(sink).waiting, 2);
  EXPECT_EQ(plan.num_slots(), 4) << "a slot for each input";
}

TEST_F(PlanTest, KeepsTheOrderOfEdgesAndMarksThoseThatLeadNowhere) {
  // {root} --> a, nothing, b
  auto a = make_node("a", {});
  auto b = make_node("b", {});
  auto root = make_node("root", {edge(a), base::Edge(), edge(b)});
  build(root);
  ASSERT_EQ(plan.num_edges(0), 3);
  const uint32_t first = plan.nodes[0].first_edge;
  EXPECT_EQ(plan.targets[first], number(a));
  EXPECT_EQ(plan.targets[first + 1], NodeTable::kNone);
  EXPECT_EQ(plan.targets[first + 2], number(b));
}

TEST_F(PlanTest, RunsEverythingWhereNothingIsAskedFor) {
  auto a = make_node("a", {});
  auto root = make_node("root", {edge(a)});
  build(root);
  EXPECT_FALSE(plan.pruned());
  EXPECT_TRUE(of(a).needed);
  EXPECT_TRUE(of(a).may_run);
  EXPECT_EQ(plan.num_captured(), 0);
}

TEST_F(PlanTest, OfAPrunedCallNeedsThePathToAnOutputAndNotTheOutputItself) {
  // {root} --+--> left --> x     wanted: x
  //          +--> right --> y
  auto x = make_node("x", {}), y = make_node("y", {});
  auto left = make_node("left", {edge(x)}), right = make_node("right", {edge(y)});
  auto root = make_node("root", {edge(left), edge(right)});
  build(root, {edge(x)}, /*accumulate_grad=*/false);
  EXPECT_TRUE(plan.pruned());
  EXPECT_TRUE(of(root).needed);
  EXPECT_TRUE(of(left).needed);
  EXPECT_FALSE(of(right).needed);
  EXPECT_FALSE(of(x).needed);
  EXPECT_TRUE(of(x).may_run) << "its gradient is captured";
}

TEST_F(PlanTest, ChainsTheCapturesOfANodeInTheOrderOfTheCall) {
  auto x = make_node("x", {});
  auto root = make_node("root", {edge(x)});
  build(root, {edge(x), edge(x)}, /*accumulate_grad=*/false);
  EXPECT_EQ(plan.num_captured(), 2);
  const uint32_t first = plan.first_capture(number(x));
  ASSERT_NE(first, NodeTable::kNone);
  EXPECT_EQ(plan.capture(first).output, 0);
  const uint32_t second = plan.capture(first).next;
  ASSERT_NE(second, NodeTable::kNone);
  EXPECT_EQ(plan.capture(second).output, 1);
  EXPECT_EQ(plan.capture(second).next, NodeTable::kNone);
}

TEST_F(PlanTest, LeavesOutAnOutputThatIsNotInTheGraph) {
  auto stranger = make_node("stranger", {});
  auto root = make_node("root", {edge(make_node("a", {}))});
  build(root, {edge(stranger)}, /*accumulate_grad=*/false);
  EXPECT_EQ(number(stranger), NodeTable::kNone);
  EXPECT_EQ(plan.num_captured(), 1) << "its place in the result stays, undefined";
  EXPECT_FALSE(of(root).needed);
}

TEST_F(PlanTest, SeesForeignNodesAndHooks) {
  auto x = leaf();
  const base::NodePtr host_node = (x * 2).grad_fn();
  build(host_node);
  EXPECT_FALSE(plan.runs_foreign_code());
  build(make_node("foreign", {}));
  EXPECT_TRUE(plan.runs_foreign_code());
  EXPECT_FALSE(plan.has_hooks());
  x.register_hook([](const at::Tensor&) {});
  build((x * 2).grad_fn());
  EXPECT_TRUE(plan.has_hooks());
}

TEST_F(PlanTest, ForgetsTheGraphAndKeepsItsTablesForTheNext) {
  auto small = make_node("small", {});
  build(make_node("root", {edge(make_node("a", {})), edge(make_node("b", {}))}));
  build(small);
  EXPECT_EQ(plan.nodes.size(), 1);
  EXPECT_EQ(plan.targets.size(), 0);
  EXPECT_EQ(plan.num_slots(), 1);
}

}  // namespace
}  // namespace overdrive::engine
