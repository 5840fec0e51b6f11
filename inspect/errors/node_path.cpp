#include "inspect/errors/node_path.h"

#include <algorithm>
#include <vector>

namespace overdrive::inspect {
namespace {

constexpr size_t kShownAtBegin = 3;
constexpr size_t kShownAtEnd = 4;

using engine::NodeTable;
using engine::Plan;

// The numbers of the nodes from the plan's root to the node.
std::vector<uint32_t> shortest_way(const Plan& plan, uint32_t node) {
  constexpr uint32_t kRoot = 0;
  std::vector<uint32_t> reached_from(plan.nodes.size(), NodeTable::kNone);
  std::vector<uint32_t> queue{kRoot};
  reached_from[kRoot] = kRoot;
  for (size_t i = 0; i < queue.size() && reached_from[node] == NodeTable::kNone; ++i) {
    const uint32_t at = queue[i], first = plan.nodes[at].first_edge;
    for (uint32_t edge = 0; edge < plan.num_edges(at); ++edge) {
      const uint32_t to = plan.targets[first + edge];
      if (to == NodeTable::kNone || reached_from[to] != NodeTable::kNone) continue;
      reached_from[to] = at;
      queue.push_back(to);
    }
  }
  std::vector<uint32_t> way;
  if (reached_from[node] == NodeTable::kNone) return way;
  for (uint32_t at = node; at != kRoot; at = reached_from[at]) way.push_back(at);
  way.push_back(kRoot);
  std::reverse(way.begin(), way.end());
  return way;
}

bool leads_to(const base::edge_list& edges, const base::Node* node) {
  return std::any_of(edges.begin(), edges.end(),
                     [node](const base::Edge& edge) { return edge.function.get() == node; });
}

// The same nodes, without LibTorch's node of several roots. Each is alive, because the one before it leads to
// it. Empty where that is so no longer.
std::vector<const base::Node*> living_way(uint32_t node, const Plan& plan, const base::edge_list& roots) {
  std::vector<const base::Node*> way;
  const base::edge_list* edges = &roots;
  for (const uint32_t number : shortest_way(plan, node)) {
    const base::Node* next = plan.nodes[number].node;
    if (number == 0 && roots.size() != 1) continue;
    if (!leads_to(*edges, next)) return {};
    way.push_back(next);
    edges = &next->next_edges();
  }
  return way;
}

}  // namespace

std::string words_for(const base::Node& node) {
  const uint64_t number = node.sequence_nr();
  return number == UINT64_MAX ? node.name() : c10::str(node.name(), " #", number);
}

std::string path_to(uint32_t node, const engine::Plan& plan, const base::edge_list& roots) {
  const std::vector<const base::Node*> way = living_way(node, plan, roots);
  std::string text;
  for (size_t i = 0; i < way.size(); ++i) {
    if (!text.empty()) text += " > ";
    if (way.size() > kShownAtBegin + kShownAtEnd + 1 && i == kShownAtBegin) {
      i = way.size() - kShownAtEnd;
      text += c10::str("... ", i - kShownAtBegin, " more ... > ");
    }
    text += words_for(*way[i]);
  }
  return text;
}

std::string gradients_of(const base::Node& node) {
  std::string text;
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    const torch::autograd::InputMetadata& metadata = node.input_metadata(i);
    if (!text.empty()) text += ", ";
    text += metadata.is_nested_tensor() ? std::string("nested") : c10::str(metadata.shape_as_dim_vector());
    text += c10::str(" ", c10::toString(c10::typeMetaToScalarType(metadata.options().dtype())), " on ",
                     metadata.device());
  }
  return text;
}

}  // namespace overdrive::inspect
