// The graphs of `overdrive bench engine`. Each isolates one cost of a backward: scheduling alone
// (nodes that do nothing), small real kernels, many leaves, nesting, and kernels so large that
// no engine can matter.
#include "bench/graph.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace overdrive::bench {

int64_t Graph::nodes() const { return nodes_visited != 0 ? nodes_visited : count_nodes(roots); }

void Graph::prepare() {
  if (build_again) build_again(*this);
  for (at::Tensor& leaf : leaves) leaf.mutable_grad().reset();
}

void Graph::run() const {
  base::Engine& runs = engine != nullptr ? *engine : base::Engine::get_default_engine();
  runs.execute(roots, root_gradients, keep_graph, /*create_graph=*/false, /*accumulate_grad=*/true,
               /*outputs=*/{});
}

namespace {

at::Tensor leaf(at::IntArrayRef shape) { return at::ones(shape).set_requires_grad(true); }

Edge accumulate_into(const at::Tensor& variable) {
  return {torch::autograd::impl::grad_accumulator(variable), 0};
}

Graph from_loss(const at::Tensor& loss, variable_list leaves) {
  Graph graph;
  graph.roots = {torch::autograd::impl::gradient_edge(loss)};
  graph.root_gradients = {at::ones_like(loss)};
  graph.leaves = std::move(leaves);
  return graph;
}

// Hands its gradient to every edge.
struct PassOn : Node {
  variable_list apply(variable_list&& gradients) override { return variable_list(num_outputs(), gradients[0]); }
  std::string name() const override { return "PassOn"; }
};

NodePtr pass_on(const at::Tensor& like, const Edge& to, int edges) {
  NodePtr node = base::make_node<PassOn>();
  node->add_input_metadata(like);
  for (int i = 0; i < edges; ++i) node->add_next_edge(to);
  return node;
}

// {x} <- PassOn <- PassOn <- ... with one edge (chain) or two (ladder) between neighbours.
Graph do_nothing(int64_t size, int edges) {
  at::Tensor x = leaf({4, 4});
  Edge last = accumulate_into(x);
  for (int64_t i = 0; i < size; ++i) last = Edge(pass_on(x, last, edges), 0);
  Graph graph;
  graph.roots = {last};
  // Zeros, because a ladder doubles its gradient at every rung.
  graph.root_gradients = {at::zeros({4, 4})};
  graph.leaves = {x};
  return graph;
}

Graph wide(int64_t size) {
  Graph graph;
  NodePtr fan = base::make_node<PassOn>();
  fan->add_input_metadata(at::ones({1}));
  for (int64_t i = 0; i < size; ++i) {
    graph.leaves.push_back(leaf({1}));
    fan->add_next_edge(accumulate_into(graph.leaves.back()));
  }
  graph.roots = {Edge(fan, 0)};
  graph.root_gradients = {at::ones({1})};
  return graph;
}

Graph scale_chain(int64_t size) {
  const at::Tensor x = leaf({4, 4});
  at::Tensor t = x;
  for (int64_t i = 0; i < size; ++i) t = t * 1.0001;
  return from_loss(t, {x});
}

Graph relu_matmul(int64_t size) {
  const at::Tensor x = leaf({4, 4});
  const at::Tensor w = (at::ones({4, 4}) * 1e-3).set_requires_grad(true);
  at::Tensor t = x;
  for (int64_t i = 0; i < size; ++i) t = at::relu(t.matmul(w)) + t;
  return from_loss(t, {x, w});
}

Graph one_node(int64_t) {
  const at::Tensor x = leaf({2, 2});
  return from_loss(x * x, {x});
}

Graph large_matmul(int64_t size) {
  const at::Tensor x = leaf({1024, 1024});
  const at::Tensor w = (at::eye(1024) * 0.5).set_requires_grad(true);
  at::Tensor t = x;
  for (int64_t i = 0; i < size; ++i) t = t.matmul(w);
  return from_loss(t, {x, w});
}

// An LSTM cell in small operations, unrolled over `steps` steps, hidden size 16, batch 1. The graph
// is consumed by every run, as in training.
Graph lstm(int64_t steps) {
  constexpr int64_t kHidden = 16;
  const at::Tensor w = (at::ones({2 * kHidden, 4 * kHidden}) * 0.01).set_requires_grad(true);
  // With the batch dimension, because an engine sums broadcast gradients and a replay does not.
  const at::Tensor b = at::zeros({1, 4 * kHidden}).set_requires_grad(true);
  Graph graph;
  graph.keep_graph = false;
  graph.build_again = [w, b, steps](Graph& self) {
    at::Tensor h = at::zeros({1, kHidden}), c = at::zeros({1, kHidden});
    const at::Tensor input = at::ones({1, kHidden});
    for (int64_t i = 0; i < steps; ++i) {
      const auto gates = (at::cat({input, h}, 1).matmul(w) + b).chunk(4, 1);
      c = at::sigmoid(gates[0]) * c + at::sigmoid(gates[1]) * at::tanh(gates[2]);
      h = at::sigmoid(gates[3]) * at::tanh(c);
    }
    const at::Tensor loss = h.sum();
    self.roots = {torch::autograd::impl::gradient_edge(loss)};
    self.root_gradients = {at::ones_like(loss)};
    self.leaves = {w, b};
  };
  graph.build_again(graph);
  return graph;
}

// A node whose backward runs the backward of the next level.
struct Descend : Node {
  std::string name() const override { return "Descend"; }
  variable_list apply(variable_list&& gradients) override {
    if (!below) return {};
    if (*by_hand) {
      (*below)(std::move(gradients));
    } else {
      torch::autograd::Engine::get_default_engine().execute({Edge(below, 0)}, gradients, /*keep_graph=*/true,
                                                            /*create_graph=*/false, /*accumulate_grad=*/true,
                                                            {});
    }
    return {};
  }
  NodePtr below;
  std::shared_ptr<bool> by_hand;
};

Graph reentrant(int64_t levels) {
  const at::Tensor like = at::ones({1});
  auto by_hand = std::make_shared<bool>(false);
  NodePtr below;
  for (int64_t i = 0; i < levels; ++i) {
    NodePtr node = base::make_node<Descend>();
    node->add_input_metadata(like);
    auto& descend = static_cast<Descend&>(*node);
    descend.below = std::move(below);
    descend.by_hand = by_hand;
    below = std::move(node);
  }
  Graph graph;
  graph.roots = {Edge(below, 0)};
  graph.root_gradients = {at::ones({1})};
  graph.nodes_visited = levels;
  graph.set_by_hand = [by_hand](bool value) { *by_hand = value; };
  return graph;
}

}  // namespace

const std::vector<GraphKind>& graph_kinds() {
  static const auto* kinds = new std::vector<GraphKind>{
      {"chain",
       "nodes that do nothing, one after another",
       [](int64_t n) { return do_nothing(n, 1); },
       {1, 1'000, 20'000, 1'000'000},
       {1, 100}},
      {"ladder",
       "the same with two edges between neighbours",
       [](int64_t n) { return do_nothing(n, 2); },
       {1'000, 20'000, 1'000'000},
       {100}},
      {"scale_chain", "t = t * c on 4x4", scale_chain, {1, 1'000, 20'000}, {100}},
      {"relu_matmul", "t = relu(t @ w) + t on 4x4", relu_matmul, {1, 1'000, 20'000}, {30}},
      {"lstm", "an LSTM cell in small operations, unrolled", lstm, {1, 20, 200}, {3}},
      {"wide", "one node, many leaves", wide, {100'000}, {1'000}},
      {"one_node", "x * x on 2x2", one_node, {1}, {1}},
      {"reentrant", "every node runs a backward of its own", reentrant, {30, 1'000}, {3, 30}},
      {"large_matmul", "t = t @ w on 1024x1024", large_matmul, {3}, {}},
  };
  return *kinds;
}

}  // namespace overdrive::bench
