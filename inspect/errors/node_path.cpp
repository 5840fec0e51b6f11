#include "inspect/errors/node_path.h"

#include <algorithm>
#include <unordered_map>

namespace overdrive::inspect {
namespace {

constexpr size_t kShownAtBegin = 3;
constexpr size_t kShownAtEnd = 4;

// From a root to the node; empty when no way leads there.
std::vector<const base::Node*> shortest_way(const base::Node& node, const base::edge_list& roots) {
  std::unordered_map<const base::Node*, const base::Node*> reached_from;
  std::vector<const base::Node*> queue;
  const auto reach = [&](const base::Edge& edge, const base::Node* from) {
    const base::Node* to = edge.function.get();
    if (to != nullptr && reached_from.emplace(to, from).second) queue.push_back(to);
  };
  for (const base::Edge& root : roots) reach(root, nullptr);
  for (size_t i = 0; i < queue.size() && !reached_from.contains(&node); ++i) {
    const base::Node* at = queue[i];
    for (const base::Edge& edge : at->next_edges()) reach(edge, at);
  }
  std::vector<const base::Node*> way;
  if (!reached_from.contains(&node)) return way;
  for (const base::Node* at = &node; at != nullptr; at = reached_from[at]) way.push_back(at);
  std::reverse(way.begin(), way.end());
  return way;
}

}  // namespace

std::string words_for(const base::Node& node) {
  const uint64_t number = node.sequence_nr();
  return number == UINT64_MAX ? node.name() : c10::str(node.name(), " #", number);
}

std::string path_to(const base::Node& node, const base::edge_list& roots) {
  const std::vector<const base::Node*> way = shortest_way(node, roots);
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
