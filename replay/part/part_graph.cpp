#include "replay/part/part_graph.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
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

bool leads_to(const Edge& edge, const at::Tensor& tensor) {
  return tensor.requires_grad() && torch::autograd::impl::gradient_edge(tensor) == edge;
}

}  // namespace

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

bool is_python_function(const Node& node) {
  return std::string_view(typeid(node).name()).find("PyNode") != std::string_view::npos;
}

PartGraph::PartGraph(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                     uint64_t first_node, const IsInner& is_inner) {
  for (const at::Tensor& output : outputs) {
    const bool differentiable = output.defined() && output.requires_grad();
    roots_.push_back(differentiable ? torch::autograd::impl::gradient_edge(output) : Edge());
    if (differentiable && output.is_leaf()) refuse("The function returns a leaf that requires a gradient.");
  }
  if (refusal_.empty()) walk(inputs, first_node, is_inner);
}

void PartGraph::refuse(std::string reason) {
  if (refusal_.empty()) refusal_ = std::move(reason);
}

void PartGraph::walk(const std::vector<at::Tensor>& inputs, uint64_t first_node, const IsInner& is_inner) {
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
    note_exits(NodePtr(found[next]), inputs, first_node, is_inner, inner);
    for (NodePtr& node : inner) {
      if (seen.insert(node.get()).second) found.push_back(std::move(node));
    }
  }
  if (!refusal_.empty()) return;
  nodes_ = std::move(found);
  sort_exits();
  int nodes = 0;
  for (size_t i = 0; i < exits_.size(); ++i) {
    const Exit& exit = exits_[i];
    if (i > 0 && exit.node != exits_[i - 1].node) ++nodes;
    if (exit.is_inner) {
      inner_leaves_.push_back(exit.tensor);
      continue;
    }
    const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const at::Tensor& each) {
      return leads_to(exit.node->next_edge(exit.edge), each);
    });
    const bool is_leaf = input == inputs.end();
    uses_.push_back({is_leaf ? PartUse::kLeaf : static_cast<int>(input - inputs.begin()),
                     is_leaf ? exit.tensor.unsafeGetTensorImpl() : nullptr, nodes});
  }
}

// A backward runs the ready node with the highest number, whatever else is in the graph. A node may have a
// higher number than the one before it: that of a view whose base was changed is made when it is asked for.
void PartGraph::sort_exits() {
  std::unordered_map<const Node*, size_t> indices;
  for (size_t i = 0; i < nodes_.size(); ++i) indices.emplace(nodes_[i].get(), i);
  std::vector<size_t> missing(nodes_.size()), turn(nodes_.size());
  const auto for_each_next = [&](const Node& node, const auto& action) {
    for (const Edge& edge : node.next_edges()) {
      if (const auto next = indices.find(edge.function.get()); edge.is_valid() && next != indices.end())
        action(next->second);
    }
  };
  for (const NodePtr& node : nodes_) for_each_next(*node, [&](size_t next) { ++missing[next]; });
  using Numbered = std::pair<uint64_t, size_t>;
  std::priority_queue<Numbered> ready;
  const auto push = [&](size_t index) { ready.emplace(nodes_[index]->sequence_nr(), index); };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (missing[i] == 0) push(i);
  }
  for (size_t count = 0; !ready.empty(); ++count) {
    const size_t index = ready.top().second;
    ready.pop();
    turn[index] = count;
    for_each_next(*nodes_[index], [&](size_t next) {
      if (--missing[next] == 0) push(next);
    });
  }
  std::stable_sort(exits_.begin(), exits_.end(), [&](const Exit& a, const Exit& b) {
    return turn[indices.at(a.node.get())] < turn[indices.at(b.node.get())];
  });
}

std::vector<std::unordered_set<const Node*>> PartGraph::reached() const {
  std::unordered_set<const Node*> inside;
  for (const NodePtr& node : nodes_) inside.insert(node.get());
  std::vector<std::unordered_set<const Node*>> reached(roots_.size());
  for (size_t i = 0; i < roots_.size(); ++i) {
    std::vector<const Node*> next{roots_[i].function.get()};
    while (!next.empty()) {
      const Node* node = next.back();
      next.pop_back();
      if (!inside.contains(node) || !reached[i].insert(node).second) continue;
      for (const Edge& edge : node->next_edges()) next.push_back(edge.function.get());
    }
  }
  return reached;
}

bool PartGraph::leaves_casts() const {
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCPU);
  return std::any_of(exits_.begin(), exits_.end(), [&](const Exit& exit) {
    return exit.node->name() == "ToCopyBackward0" && exit.tensor.scalar_type() == at::kFloat &&
           at::autocast::cached_cast(type, exit.tensor, at::kCPU).grad_fn() == exit.node;
  });
}

std::vector<std::vector<bool>> PartGraph::shared_nodes() const {
  const auto nodes = reached();
  std::vector<std::vector<bool>> shared(nodes.size(), std::vector<bool>(nodes.size()));
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t k = 0; k < nodes.size(); ++k) {
      shared[i][k] = std::any_of(nodes[i].begin(), nodes[i].end(),
                                 [&](const Node* node) { return nodes[k].contains(node); });
    }
  }
  return shared;
}

std::vector<std::vector<bool>> PartGraph::leads() const {
  std::vector<std::vector<bool>> leads;
  for (const auto& nodes : reached()) {
    leads.emplace_back();
    for (const Exit& exit : exits_) {
      if (!exit.is_inner) leads.back().push_back(nodes.contains(exit.node.get()));
    }
  }
  return leads;
}

bool PartGraph::frees_a_function() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const NodePtr& node) {
    return dynamic_cast<const torch::autograd::CopySlices*>(node.get()) != nullptr;
  });
}

// Where an edge gets no gradient, the node behind it runs nevertheless: hooks of a leaf see an undefined one,
// and nodes before an input are freed.
std::string PartGraph::refusal_of_lonely_outputs() const {
  if (!refusal_.empty()) return "";
  const auto nodes = reached();
  for (size_t i = 0, use = 0; i < exits_.size(); ++i) {
    if (exits_[i].is_inner) continue;
    const bool is_input = uses_[use++].input != PartUse::kLeaf;
    const auto same = [&](size_t k) { return exits_[k].tensor.is_same(exits_[i].tensor); };
    for (size_t output = 0; output < nodes.size(); ++output) {
      if (!roots_[output].is_valid()) continue;
      bool leads = false;
      for (size_t k = 0; k < exits_.size(); ++k)
        leads |= same(k) && nodes[output].contains(exits_[k].node.get());
      if (leads) continue;
      if (is_input)
        return "An output does not depend on an input that another output depends on, and the input requires a "
               "gradient; make two parts of it.";
      if (has_hooks(*torch::autograd::impl::gradient_edge(exits_[i].tensor).function))
        return "A parameter has a hook, and one of the outputs does not depend on the parameter; make two "
               "parts "
               "of it.";
    }
  }
  return "";
}

void PartGraph::note_exits(const NodePtr& node, const std::vector<at::Tensor>& inputs, uint64_t first_node,
                           const IsInner& is_inner, std::vector<NodePtr>& found) {
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
      exits_.push_back({node, i, leaf->variable, is_inner(leaf->variable)});
    } else if (edge.function->sequence_nr() < first_node) {
      return refuse(c10::str("The function uses a tensor with a graph (", edge.function->name(),
                             ") that is none of its arguments; give it as an argument."));
    } else {
      found.push_back(edge.function);
    }
  }
}

namespace {

// Whether each of the outputs is made by a node behind those of `from`.
std::vector<bool> behind(at::TensorList from, const std::vector<at::Tensor>& outputs, uint64_t first_node) {
  std::vector<const Node*> found;
  std::unordered_set<const Node*> below;
  const auto look_below = [&](const Node& node) {
    for (const Edge& edge : node.next_edges()) {
      if (!edge.is_valid() || edge.function->sequence_nr() < first_node) continue;
      if (below.insert(edge.function.get()).second) found.push_back(edge.function.get());
    }
  };
  for (const at::Tensor& output : from) {
    if (output.defined() && output.grad_fn()) look_below(*output.grad_fn());
  }
  for (size_t next = 0; next < found.size(); ++next) look_below(*found[next]);
  std::vector<bool> result;
  for (const at::Tensor& output : outputs)
    result.push_back(output.defined() && output.grad_fn() && below.contains(output.grad_fn().get()));
  return result;
}

}  // namespace

std::vector<bool> feed_others(const std::vector<at::Tensor>& outputs, uint64_t first_node) {
  return behind(outputs, outputs, first_node);
}

std::vector<std::vector<bool>> made_of(const std::vector<at::Tensor>& outputs, uint64_t first_node) {
  std::vector<std::vector<bool>> result;
  for (const at::Tensor& output : outputs) result.push_back(behind(output, outputs, first_node));
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
  std::vector<at::Tensor> received(uses_.size());
  if (roots.empty()) return received;
  TurnedEdges turned;
  std::vector<NodePtr> collectors;
  base::edge_list ends;
  for (size_t i = 0, use = 0; i < exits_.size(); ++i) {
    collectors.push_back(base::make_node<Collector>(exits_[i].tensor));
    turned.turn(exits_[i].node->next_edges()[exits_[i].edge], collectors.back());
    // The node of a change in a view has the function of the change, which leads to the same nodes.
    auto* const slices = dynamic_cast<torch::autograd::CopySlices*>(exits_[i].node.get());
    if (slices && slices->fn && exits_[i].edge > 0)
      turned.turn(slices->fn->next_edges()[exits_[i].edge], collectors.back());
    if (exits_[i].is_inner) continue;
    if (wanted[use++]) ends.emplace_back(collectors.back(), 0);
  }
  const bool all = ends.size() == uses_.size();
  base::variable_list captured = base::Engine::get_default_engine().execute(
      roots, seeds, keep_graph, create_graph, /*accumulate_grad=*/all, all ? base::edge_list() : ends);
  for (size_t i = 0, use = 0, next = 0; i < exits_.size(); ++i) {
    if (exits_[i].is_inner) continue;
    if (all) {
      received[use] = static_cast<Collector&>(*collectors[i]).received;
    } else if (wanted[use]) {
      received[use] = captured[next++];
    }
    ++use;
  }
  return received;
}

}  // namespace overdrive::replay
