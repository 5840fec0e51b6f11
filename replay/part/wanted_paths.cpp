#include "replay/part/wanted_paths.h"

#include "engine/host/graph_task.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace overdrive::replay {

namespace {

using base::Edge;
using base::Node;

// A part's outputs are places of their own, all outputs of another node one.
using Place = std::pair<const Node*, uint32_t>;

Place place_of(const Edge& edge, const NodeOfPaths* part) {
  return {edge.function.get(), part ? edge.input_nr : 0};
}

template <typename Action>
void follow(const Node& node, const NodeOfPaths* part, uint32_t input, const Action& action) {
  const base::edge_list& edges = node.next_edges();
  for (size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].is_valid() && (!part || part->leads(input, i))) action(edges[i]);
  }
}

const NodeOfPaths* as_part(const Node* node) { return dynamic_cast<const NodeOfPaths*>(node); }

// All nodes behind these, and they themselves, without those that are seen already and what is behind one of
// which the action says false.
template <typename Action>
void walk(std::vector<const Node*> next, std::unordered_set<const Node*>& seen, const Action& action) {
  while (!next.empty()) {
    const Node* node = next.back();
    next.pop_back();
    if (!seen.insert(node).second) continue;
    if (!action(*node)) continue;
    for (const Edge& edge : node->next_edges()) {
      if (edge.is_valid()) next.push_back(edge.function.get());
    }
  }
}

// The first nodes of the backward. The caller holds them; of the table's nodes the one before several roots is
// gone as soon as it has run.
std::vector<const Node*> roots_of_backward() {
  const auto& roots = engine::host::current_graph_task()->graph_roots_;
  return {roots.begin(), roots.end()};
}

}  // namespace

WantedPaths::WantedPaths() : table_(torch::autograd::get_current_graph_task_exec_info()) {}

bool WantedPaths::runs(const Node* node) const {
  const auto found = table_->find(const_cast<Node*>(node));
  return found != table_->end() && found->second.should_execute();
}

bool WantedPaths::captures(const Node& node) const {
  if (is_for_all()) return false;
  const auto found = table_->find(const_cast<Node*>(&node));
  return found != table_->end() && found->second.captures_ != nullptr;
}

bool WantedPaths::lead_from(const Edge& edge) const {
  std::vector<Edge> found{edge};
  std::set<Place> seen;
  while (!found.empty()) {
    const Edge next = std::move(found.back());
    found.pop_back();
    if (!next.is_valid() || !runs(next.function.get())) continue;
    if (captures(*next.function) || next.function->num_outputs() == 0) return true;
    const NodeOfPaths* part = as_part(next.function.get());
    if (!seen.insert(place_of(next, part)).second) continue;
    follow(*next.function, part, next.input_nr, [&](const Edge& each) { found.push_back(each); });
  }
  return false;
}

std::vector<Node*> WantedPaths::needless() const {
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> seen;
  walk(roots_of_backward(), seen, [&](const Node& node) {
    if (runs(&node)) nodes.push_back(const_cast<Node*>(&node));
    return true;
  });
  // What is behind a node comes first.
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->topological_nr() < b->topological_nr(); });
  std::set<Place> wanted;
  std::vector<Node*> result;
  for (Node* node : nodes) {
    const NodeOfPaths* part = as_part(node);
    bool any = false;
    for (uint32_t input = 0; input < (part ? node->num_inputs() : 1); ++input) {
      bool leads = captures(*node) || node->num_outputs() == 0;
      follow(*node, part, input,
             [&](const Edge& edge) { leads |= wanted.contains(place_of(edge, as_part(edge.function.get()))); });
      if (leads) wanted.insert({node, input});
      any |= leads;
    }
    if (!any) result.push_back(node);
  }
  return result;
}

bool WantedPaths::leave_out(const std::vector<base::WeakNodePtr>& outputs) const {
  if (is_for_all()) return false;
  std::vector<base::NodePtr> held;
  std::vector<const Node*> ends, left_out;
  for (const base::WeakNodePtr& output : outputs) {
    if (const base::NodePtr node = output.lock()) held.push_back(node);
  }
  for (const base::NodePtr& node : held) {
    ends.push_back(node.get());
    if (!runs(node.get())) left_out.push_back(node.get());
  }
  if (left_out.empty()) return false;
  std::unordered_set<const Node*> seen;
  walk(std::move(ends), seen, [](const Node&) { return true; });
  // What is before the outputs.
  bool found = false;
  walk(roots_of_backward(), seen, [&](const Node& node) {
    if (runs(&node)) return true;
    for (const Edge& edge : node.next_edges())
      found |= std::find(left_out.begin(), left_out.end(), edge.function.get()) != left_out.end();
    return true;
  });
  return found;
}

bool leads_from_later(const Edge& edge, uint64_t first_later) {
  if (!engine::host::current_graph_task()) return false;
  bool found = false;
  std::unordered_set<const Node*> seen;
  walk(roots_of_backward(), seen, [&](const Node& node) {
    if (node.sequence_nr() < first_later) return false;
    const base::edge_list& next = node.next_edges();
    found |= std::find(next.begin(), next.end(), edge) != next.end();
    return !found;
  });
  return found;
}

}  // namespace overdrive::replay
