#include "bench/replay.h"

#include <queue>
#include <unordered_map>

namespace overdrive::bench {

namespace {

struct Found {
  uint32_t waits_for = 0;
  uint32_t first_slot = 0;
};
using FoundNodes = std::unordered_map<Node*, Found>;

FoundNodes find_nodes(const edge_list& roots) {
  FoundNodes found;
  std::vector<Node*> open;
  auto see = [&](Node* node) {
    if (found.try_emplace(node).second) open.push_back(node);
  };
  for (const Edge& root : roots) see(root.function.get());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      see(edge.function.get());
      ++found[edge.function.get()].waits_for;
    }
  }
  return found;
}

bool runs_later(const Node* a, const Node* b) { return a->sequence_nr() < b->sequence_nr(); }

// The order of the engine, ties aside: they do not change what a replay costs.
std::vector<Node*> order_nodes(FoundNodes found, const edge_list& roots) {
  std::priority_queue<Node*, std::vector<Node*>, decltype(&runs_later)> ready(&runs_later);
  for (const Edge& root : roots) {
    if (found[root.function.get()].waits_for == 0) ready.push(root.function.get());
  }
  std::vector<Node*> order;
  order.reserve(found.size());
  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const Edge& edge : node->next_edges()) {
      if (edge.is_valid() && --found[edge.function.get()].waits_for == 0) ready.push(edge.function.get());
    }
  }
  return order;
}

void add_into(at::Tensor& slot, at::Tensor&& gradient) {
  if (!gradient.defined()) return;
  if (!slot.defined()) {
    slot = std::move(gradient);
  } else if (slot.use_count() == 1 && slot.has_storage() && slot.storage().use_count() == 1) {
    slot.add_(gradient);
  } else {
    slot = slot + gradient;
  }
}

}  // namespace

int64_t count_nodes(const edge_list& roots) { return static_cast<int64_t>(find_nodes(roots).size()); }

Replay::Replay(const Graph& graph) : graph_(graph) {
  FoundNodes found = find_nodes(graph.roots);
  const std::vector<Node*> order = order_nodes(found, graph.roots);
  uint32_t next_slot = 0;
  for (Node* node : order) {
    found[node].first_slot = next_slot;
    next_slot += node->num_inputs();
  }
  slots_.resize(next_slot);
  for (const Edge& root : graph.roots) {
    root_slots_.push_back(found[root.function.get()].first_slot + root.input_nr);
  }
  for (Node* node : order) {
    steps_.push_back(
        {node, found[node].first_slot, node->num_inputs(), static_cast<uint32_t>(targets_.size())});
    for (const Edge& edge : node->next_edges()) {
      targets_.push_back(edge.is_valid() ? found[edge.function.get()].first_slot + edge.input_nr : kNowhere);
    }
  }
}

void Replay::run() {
  at::AutoGradMode no_grad(false);
  for (size_t i = 0; i < root_slots_.size(); ++i) {
    add_into(slots_[root_slots_[i]], at::Tensor(graph_.root_gradients[i]));
  }
  for (const Step& step : steps_) {
    variable_list inputs;
    inputs.reserve(step.slots);
    for (uint32_t i = 0; i < step.slots; ++i) inputs.push_back(std::move(slots_[step.first_slot + i]));
    variable_list outputs = (*step.node)(std::move(inputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const uint32_t target = targets_[step.first_edge + i];
      if (target != kNowhere) add_into(slots_[target], std::move(outputs[i]));
    }
  }
}

}  // namespace overdrive::bench
