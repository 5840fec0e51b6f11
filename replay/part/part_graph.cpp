#include "replay/part/part_graph.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <typeinfo>
#include <unordered_set>

namespace overdrive::replay {

namespace {

using base::Edge;
using base::Node;
using base::NodePtr;

// Stands where an edge leaves the part, and keeps the gradient that arrives.
class Collector final : public Node {
 public:
  // As a leaf's node, it runs as soon as its gradient is there, which is one for this tensor.
  explicit Collector(const at::Tensor& tensor) : Node(std::numeric_limits<uint64_t>::max()) {
    add_input_metadata(tensor);
  }

  std::string name() const override { return "PartCollector"; }
  base::variable_list apply(base::variable_list&& gradients) override {
    received = gradients.at(0);
    return {};
  }

  at::Tensor received;
};

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty();
}

// Its backward is code of Python, and what this code reads no recording sees.
bool is_python_function(const Node& node) {
  return std::string_view(typeid(node).name()).find("PyNode") != std::string_view::npos;
}

bool leads_to(const Edge& edge, const at::Tensor& tensor) {
  return tensor.requires_grad() && torch::autograd::impl::gradient_edge(tensor) == edge;
}

}  // namespace

PartGraph::PartGraph(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                     uint64_t first_node) {
  for (const at::Tensor& output : outputs) {
    const bool differentiable = output.defined() && output.requires_grad();
    roots_.push_back(differentiable ? torch::autograd::impl::gradient_edge(output) : Edge());
    if (differentiable && output.is_leaf()) refuse("The function returns a leaf that requires a gradient.");
  }
  if (refusal_.empty()) walk(inputs, first_node);
}

void PartGraph::refuse(std::string reason) {
  if (refusal_.empty()) refusal_ = std::move(reason);
}

void PartGraph::walk(const std::vector<at::Tensor>& inputs, uint64_t first_node) {
  std::vector<NodePtr> found;
  std::unordered_set<const Node*> seen;
  for (const Edge& root : roots_) {
    if (root.is_valid() && seen.insert(root.function.get()).second) found.push_back(root.function);
  }
  for (const NodePtr& root : found) {
    if (root->sequence_nr() < first_node)
      return refuse("The function returns a tensor that was there before the call.");
  }
  for (size_t next = 0; next < found.size() && refusal_.empty(); ++next) {
    std::vector<NodePtr> inner;
    note_exits(NodePtr(found[next]), inputs, first_node, inner);
    for (NodePtr& node : inner) {
      if (seen.insert(node.get()).second) found.push_back(std::move(node));
    }
  }
  if (!refusal_.empty()) return;
  // A backward runs nodes in this order, whatever else is in the graph.
  std::stable_sort(exits_.begin(), exits_.end(),
                   [](const Exit& a, const Exit& b) { return a.node->sequence_nr() > b.node->sequence_nr(); });
  for (const Exit& exit : exits_) {
    const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const at::Tensor& each) {
      return leads_to(exit.node->next_edge(exit.edge), each);
    });
    const bool is_leaf = input == inputs.end();
    const size_t before = uses_.empty() ? 0 : uses_.back().node;
    const bool same_node = uses_.empty() || exit.node == exits_[uses_.size() - 1].node;
    uses_.push_back({is_leaf ? PartUse::kLeaf : static_cast<int>(input - inputs.begin()),
                     is_leaf ? exit.tensor.unsafeGetTensorImpl() : nullptr, same_node ? before : before + 1});
  }
}

void PartGraph::note_exits(const NodePtr& node, const std::vector<at::Tensor>& inputs, uint64_t first_node,
                           std::vector<NodePtr>& found) {
  if (has_hooks(*node)) {
    return refuse(c10::str("A tensor inside has a hook or retain_grad() (", node->name(),
                           "), which a replay would not call; put it on a tensor outside."));
  }
  if (is_python_function(*node)) {
    return refuse(c10::str(node->name(),
                           " is an autograd.Function of Python, whose backward a recording does not see; "
                           "leave it outside."));
  }
  for (size_t i = 0; i < node->num_outputs(); ++i) {
    const Edge& edge = node->next_edge(i);
    if (!edge.is_valid()) continue;
    const auto input = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const at::Tensor& each) { return leads_to(edge, each); });
    if (input != inputs.end()) {
      exits_.push_back({node, i, *input});
    } else if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get())) {
      exits_.push_back({node, i, leaf->variable});
    } else if (edge.function->sequence_nr() < first_node) {
      return refuse(c10::str("The function uses a tensor with a graph (", edge.function->name(),
                             ") that is none of its arguments; give it as an argument."));
    } else {
      found.push_back(edge.function);
    }
  }
}

std::vector<bool> feed_others(const std::vector<at::Tensor>& outputs, uint64_t first_node) {
  std::vector<const Node*> found;
  std::unordered_set<const Node*> below;
  const auto look_below = [&](const Node& node) {
    for (const Edge& edge : node.next_edges()) {
      if (!edge.is_valid() || edge.function->sequence_nr() < first_node) continue;
      if (below.insert(edge.function.get()).second) found.push_back(edge.function.get());
    }
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.grad_fn()) look_below(*output.grad_fn());
  }
  for (size_t next = 0; next < found.size(); ++next) look_below(*found[next]);
  std::vector<bool> result;
  for (const at::Tensor& output : outputs)
    result.push_back(output.defined() && output.grad_fn() && below.contains(output.grad_fn().get()));
  return result;
}

namespace {

// Edges of the graph lead to other nodes, until the end of the scope.
class TurnedEdges {
 public:
  void turn(Edge& edge, NodePtr to) {
    turned_.emplace_back(&edge, edge);
    edge = Edge(std::move(to), 0);
  }
  TurnedEdges() = default;
  TurnedEdges(const TurnedEdges&) = delete;
  TurnedEdges& operator=(const TurnedEdges&) = delete;
  ~TurnedEdges() {
    for (auto& [edge, before] : turned_) *edge = std::move(before);
  }

 private:
  std::vector<std::pair<Edge*, Edge>> turned_;
};

}  // namespace

std::vector<at::Tensor> PartGraph::pull(const std::vector<at::Tensor>& gradients,
                                        const std::vector<bool>& wanted, bool keep_graph,
                                        bool create_graph) const {
  base::edge_list roots;
  base::variable_list seeds;
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (!roots_[i].is_valid() || !gradients[i].defined()) continue;
    roots.push_back(roots_[i]);
    seeds.push_back(gradients[i]);
  }
  std::vector<at::Tensor> received(exits_.size());
  if (roots.empty()) return received;
  TurnedEdges turned;
  std::vector<NodePtr> collectors;
  base::edge_list ends;
  for (size_t i = 0; i < exits_.size(); ++i) {
    collectors.push_back(base::make_node<Collector>(exits_[i].tensor));
    turned.turn(exits_[i].node->next_edges()[exits_[i].edge], collectors.back());
    if (wanted[i]) ends.emplace_back(collectors.back(), 0);
  }
  const bool all = ends.size() == exits_.size();
  base::variable_list captured = base::Engine::get_default_engine().execute(
      roots, seeds, keep_graph, create_graph, /*accumulate_grad=*/all, all ? base::edge_list() : ends);
  for (size_t i = 0, next = 0; i < exits_.size(); ++i) {
    if (all) {
      received[i] = static_cast<Collector&>(*collectors[i]).received;
    } else if (wanted[i]) {
      received[i] = captured[next++];
    }
  }
  return received;
}

}  // namespace overdrive::replay
