// The order that a serial run takes, worked out beforehand.
#include "engine/plan/serial_order.h"
#include "test/support/graph.h"

#include <queue>

namespace overdrive::engine {
namespace {

using test::edge;
using test::make_node_at;

std::vector<std::string> order_of(const base::NodePtr& root, const base::edge_list& outputs = {}) {
  Plan plan;
  plan.build({root.get(), false, outputs, outputs.empty()});
  std::vector<std::string> names;
  for (const uint32_t index : serial_order(plan)) names.push_back(plan.nodes[index].node->name());
  return names;
}
using Names = std::vector<std::string>;

TEST(SerialOrder, TakesLaterForwardOpsFirst) {
  // {root 9} --+--> early 1
  //            +--> late 5
  auto early = make_node_at(1, "early", {});
  auto late = make_node_at(5, "late", {});
  EXPECT_EQ(order_of(make_node_at(9, "root", {edge(early), edge(late)})), (Names{"root", "late", "early"}));
}

TEST(SerialOrder, WaitsForEveryGradientOfANode) {
  // {root 9} --+--> a 2 -------+
  //            +--> b 1 --> join 8
  auto join = make_node_at(8, "join", {});
  auto a = make_node_at(2, "a", {edge(join)});
  auto b = make_node_at(1, "b", {edge(join)});
  EXPECT_EQ(order_of(make_node_at(9, "root", {edge(a), edge(b)})), (Names{"root", "a", "b", "join"}));
}

TEST(SerialOrder, SettlesTiesAsThePriorityQueueOfTheHostDoes) {
  // {root 9} --> seven nodes with one number
  base::edge_list edges;
  const auto all_equal = [](const std::string&, const std::string&) { return false; };
  std::priority_queue<std::string, Names, decltype(all_equal)> queue(all_equal);
  for (const char* name : {"p", "q", "r", "s", "t", "u", "v"}) {
    edges.push_back(edge(make_node_at(3, name, {})));
    queue.push(name);
  }
  Names expected{"root"};
  for (; !queue.empty(); queue.pop()) expected.push_back(queue.top());
  EXPECT_EQ(order_of(make_node_at(9, "root", edges)), expected);
  EXPECT_NE(expected[2], "q") << "the order of the edges would pass as well";
}

TEST(SerialOrder, LeavesOutBranchesThatAPrunedCallDoesNotNeed) {
  auto wanted = make_node_at(1, "wanted", {});
  auto other = make_node_at(2, "other", {});
  auto root = make_node_at(9, "root", {edge(wanted), edge(other)});
  EXPECT_EQ(order_of(root, {edge(wanted)}), (Names{"root", "wanted"}));
}

}  // namespace
}  // namespace overdrive::engine
