// The graph of a backward as values, and as text.
#include "inspect/graph/graph.h"

#include "hooks/hooks.h"
#include "inspect/graph/predicted_order.h"
#include "inspect/trace/trace.h"
#include "test/inspect/trace_reader.h"
#include "test/support/engines.h"
#include "test/support/graph.h"

#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace overdrive::test {
namespace {

using inspect::Graph;
using inspect::GraphNode;
using inspect::Owner;
using inspect::SavedState;
using Json = nlohmann::json;

// On a thread of its own nodes are numbered from 0.
template <typename Body>
void on_fresh_thread(Body body) {
  std::thread(body).join();
}

at::Tensor leaf_of(at::IntArrayRef sizes) { return at::ones(sizes).requires_grad_(); }

const GraphNode& node_named(const Graph& graph, const std::string& name) {
  for (const GraphNode& node : graph.nodes) {
    if (node.name == name || node.leaf_name == name) return node;
  }
  throw std::runtime_error("no node " + name);
}

std::string golden(const std::string& name) {
  std::ifstream file(std::string(std::getenv("OVERDRIVE_TEST_GOLDEN")) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// {x} --+
// {w} --+--> {mm} --> {relu} --> {sum}
Graph small_graph() {
  const at::Tensor x = leaf_of({2, 3}), w = leaf_of({3, 2});
  return graph(x.mm(w).relu().sum(), {{"input", x}, {"weight \"w\"", w}});
}

TEST(GraphOfBackward, IsTheGoldenOne) {
  on_fresh_thread([] {
    const Graph graph = small_graph();
    EXPECT_EQ(to_json(graph), golden("small.json"));
    EXPECT_EQ(to_dot(graph), golden("small.dot"));
  });
}

TEST(GraphOfBackward, NamesTheOwnersOfSavedTensors) {
  const at::Tensor x = leaf_of({4, 4}), data = at::rand({4, 4});
  const at::Tensor transposed = x.t();
  const at::Tensor grown = (x * data).exp();
  const Graph g = graph((grown * transposed).sum());
  const GraphNode exp = node_named(g, "ExpBackward0");
  ASSERT_EQ(exp.saved.size(), 1u);
  EXPECT_EQ(exp.saved[0].owner, Owner::kNode);
  EXPECT_EQ(g.nodes[static_cast<size_t>(exp.saved[0].owner_node)].name, "ExpBackward0");
  // The product saves a view of the leaf, and exp's output, which it holds first in the order of the run.
  const GraphNode& product = g.nodes[g.run_order[1]];
  ASSERT_EQ(product.name, "MulBackward0");
  ASSERT_EQ(product.saved.size(), 2u);
  EXPECT_EQ(product.saved[0].owner, Owner::kLeaf);
  EXPECT_EQ(product.saved[1].owner, Owner::kNode);
  EXPECT_TRUE(product.saved[1].first_holder);
  EXPECT_FALSE(exp.saved[0].first_holder);
  EXPECT_EQ(product.held_bytes, 64);
  const GraphNode& scaled = g.nodes[g.run_order[3]];  // after exp
  ASSERT_EQ(scaled.name, "MulBackward0");
  ASSERT_EQ(scaled.saved.size(), 1u);
  EXPECT_EQ(scaled.saved[0].owner, Owner::kNoGraph);
  EXPECT_EQ(g.held_bytes(), 128);
}

TEST(GraphOfBackward, ListsWhatCannotBeReadAsUnknown) {
  const at::Tensor x = leaf_of({2});
  const at::Tensor y = (x * x).sum();
  EXPECT_EQ(node_named(graph(y), "MulBackward0").saved_state, SavedState::kKnown);
  y.backward();
  EXPECT_EQ(node_named(graph(y), "MulBackward0").saved_state, SavedState::kReleased);

  const at::Tensor changed = leaf_of({2}).clone();
  const at::Tensor z = changed * changed;
  changed.add_(1);
  EXPECT_EQ(node_named(graph(z), "MulBackward0").saved_state, SavedState::kChanged);

  const at::Tensor by_hand = output_of(make_node("by hand", {accumulator(x)}));
  EXPECT_EQ(node_named(graph(by_hand), "by hand").saved_state, SavedState::kUnknown);
}

TEST(GraphOfBackward, CallsNoHookThatHasPackedATensor) {
  on<Overdrive>([] {
    const at::Tensor x = leaf_of({64}).exp();
    at::Tensor y;
    {
      const hooks::ScopedHooks scope(hooks::keep());
      y = x.sin();
    }
    EXPECT_EQ(node_named(graph(y), "SinBackward0").saved_state, SavedState::kPacked);
    EXPECT_TRUE(node_named(graph(y), "SinBackward0").saved.empty());
  });
}

TEST(GraphOfBackward, RefusesATensorWithoutAGraph) {
  EXPECT_THROW(graph(at::ones({2})), c10::Error);
  EXPECT_THROW(graph(std::vector<at::Tensor>{}), c10::Error);
  const at::Tensor x = leaf_of({2});
  EXPECT_EQ(graph(x).nodes.size(), 1u);
  EXPECT_TRUE(graph(x).nodes[0].leaf);
}

TEST(GraphOfBackward, OfSeveralTensorsLeavesOutTheNodeAboveThem) {
  const at::Tensor x = leaf_of({2});
  const at::Tensor a = x.sin(), b = x.cos();
  const uint64_t number = at::sequence_number::peek();
  const Graph g = graph({a, b});
  EXPECT_EQ(at::sequence_number::peek(), number) << "looking has changed the numbers of nodes";
  EXPECT_EQ(g.nodes.size(), 3u);
  ASSERT_EQ(g.roots.size(), 2u);
  EXPECT_EQ(g.nodes[g.roots[0]].name, "SinBackward0");
  EXPECT_EQ(g.nodes[g.roots[1]].name, "CosBackward0");
}

at::Tensor layers(int count) {
  const at::Tensor x = leaf_of({4, 4}), w = leaf_of({4, 4});
  at::Tensor y = x;
  for (int i = 0; i < count; ++i) y = y.mm(w).tanh() + y;
  return y.sum();
}

TEST(GraphOfBackward, FoldsTheLayersOfAModel) {
  const Graph g = graph(layers(12));
  ASSERT_EQ(g.blocks.size(), 1u);
  EXPECT_EQ(g.blocks[0].period, 3u);
  EXPECT_EQ(g.blocks[0].count, 12u);
}

TEST(GraphOfBackward, IsStrictJsonWithNumbersThatFit) {
  on_fresh_thread([] {
    const Graph g = graph(layers(40));
    const Json json = Json::parse(to_json(g));
    ASSERT_EQ(json["nodes"].size(), g.nodes.size());
    for (const Json& edge : json["edges"]) {
      ASSERT_EQ(edge.size(), 4u);
      EXPECT_LT(edge[0].get<size_t>(), g.nodes.size());
      EXPECT_LT(edge[1].get<size_t>(), g.nodes.size());
    }
    std::vector<bool> orders(g.nodes.size());
    for (const Json& node : json["nodes"]) orders[node["order"].get<size_t>()] = true;
    EXPECT_EQ(std::count(orders.begin(), orders.end(), true), static_cast<long>(g.nodes.size()));
  });
}

TEST(GraphOfBackward, IsOnePageThatCarriesItsData) {
  const Graph g = small_graph();
  const std::string page = to_html(g, "a </script><b> & \"name\"");
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(mark) + mark.size();
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["title"], "a </script><b> & \"name\"");
  EXPECT_EQ(data["graph"], Json::parse(to_json(g)));
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
}

TEST(GraphOfBackward, HasTheTimesOfATrace) {
  const TraceOnDisk trace_file("GraphTimes");
  const std::string& file = trace_file.path;
  on<Overdrive>([&] {
    on_fresh_thread([&] {
      const at::Tensor w = leaf_of({4, 4});
      const at::Tensor loss = w.mul(2).tanh().sum();
      Graph g = inspect::graph(loss);
      EXPECT_THROW(add_times(g, file + ".missing"), c10::Error);
      {
        const inspect::Trace trace(file);
        loss.backward();
      }
      EXPECT_EQ(add_times(g, file), 3u);
      EXPECT_GE(node_named(g, "TanhBackward0").seconds, 0);
      EXPECT_LT(node_named(g, "TanhBackward0").seconds, 10);
      EXPECT_TRUE(std::isnan(node_named(g, "torch::autograd::AccumulateGrad").seconds));
      // Another graph has other nodes; what is no trace has none.
      Graph other = inspect::graph(w.exp().sum());
      EXPECT_THROW(add_times(other, file), c10::Error);
      std::ofstream(file) << "{\"name\":\"TanhBackward0\",\"dur\":-1,\"args\":{\"seq\":1}}\n\"dur\":\n[[[";
      Graph again = inspect::graph(loss);
      EXPECT_THROW(add_times(again, file), c10::Error);
    });
  });
}

}  // namespace
}  // namespace overdrive::test
