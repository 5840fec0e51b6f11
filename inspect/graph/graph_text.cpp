#include "engine/base/json_text.h"
#include "inspect/graph/graph.h"
#include "inspect/page/page.h"

namespace overdrive::inspect {
namespace {

std::string shape_text(const TensorLook& look) {
  std::string text = "[";
  for (const int64_t size : look.shape) {
    if (text.size() > 1) text += ", ";
    text += size < 0 ? std::string("?") : std::to_string(size);
  }
  return text + ']';
}

const char* word_for(SavedState state) {
  switch (state) {
    case SavedState::kKnown:
      return "known";
    case SavedState::kReleased:
      return "released";
    case SavedState::kPacked:
      return "packed";
    case SavedState::kChanged:
      return "changed";
    case SavedState::kUnknown:
      break;
  }
  return "unknown";
}

const char* word_for(Owner owner) {
  switch (owner) {
    case Owner::kLeaf:
      return "leaf";
    case Owner::kNode:
      return "node";
    case Owner::kNoGraph:
      break;
  }
  return "no graph";
}

std::string look_fields(const TensorLook& look) {
  std::string json = "\"shape\": [";
  for (size_t i = 0; i < look.shape.size(); ++i) {
    if (i != 0) json += ", ";
    json += look.shape[i] < 0 ? std::string("null") : std::to_string(look.shape[i]);
  }
  return json + "], \"dtype\": " + base::json_quoted(look.dtype) +
         ", \"device\": " + base::json_quoted(look.device) + ", \"bytes\": " + std::to_string(look.bytes);
}

std::string saved_json(const SavedLook& saved) {
  return "{" + look_fields(saved.look) + ", \"owner\": " + base::json_quoted(word_for(saved.owner)) +
         ", \"owner_node\": " + (saved.owner_node < 0 ? "null" : std::to_string(saved.owner_node)) +
         ", \"first_holder\": " + (saved.first_holder ? "true" : "false") + "}";
}

std::string node_json(const GraphNode& node) {
  std::string json = "{\"name\": " + base::json_quoted(node.name);
  if (node.leaf) {
    json += ", \"leaf\": true, \"leaf_name\": " +
            (node.leaf_name.empty() ? "null" : base::json_quoted(node.leaf_name));
  } else {
    json += ", \"leaf\": false, \"sequence_nr\": " + std::to_string(node.sequence_nr) +
            ", \"own\": " + (node.own ? "true" : "false");
  }
  json += ", \"order\": " + std::to_string(node.order) + ", \"gradients\": " +
          base::json_list(node.gradients, [](const TensorLook& look) { return "{" + look_fields(look) + "}"; });
  if (!node.leaf) {
    json += std::string(", \"saved_state\": \"") + word_for(node.saved_state) +
            "\", \"saved\": " + base::json_list(node.saved, saved_json) +
            ", \"held_bytes\": " + std::to_string(node.held_bytes);
  }
  return json + ", \"seconds\": " + base::json_number(node.seconds) + "}";
}

std::string dot_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// A line for each fact; "\\n" is Graphviz's line end, so lines are quoted one by one.
std::string dot_label(const GraphNode& node) {
  std::string label = dot_quoted(node.leaf && !node.leaf_name.empty() ? node.leaf_name : node.name);
  const auto add = [&](const std::string& line) {
    const std::string quoted = dot_quoted(line);
    label.insert(label.size() - 1, "\\n" + quoted.substr(1, quoted.size() - 2));
  };
  if (!node.leaf) add("#" + std::to_string(node.sequence_nr));
  for (const TensorLook& look : node.gradients) add(shape_text(look) + " " + look.dtype);
  if (node.held_bytes != 0) add("holds " + std::to_string(node.held_bytes) + " bytes");
  return label;
}

}  // namespace

std::string to_json(const Graph& graph) {
  std::string json = "{\"overdrive_graph\": 1,\n\"held_bytes\": " + std::to_string(graph.held_bytes());
  const auto number = [](uint32_t value) { return std::to_string(value); };
  json += ",\n\"roots\": " + base::json_list(graph.roots, number);
  json += ",\n\"nodes\": " + base::json_list(graph.nodes, node_json, ",\n");
  const auto edge = [](const GraphEdge& e) {
    return "[" + std::to_string(e.from) + ", " + std::to_string(e.to) + ", " + std::to_string(e.output) + ", " +
           std::to_string(e.input) + "]";
  };
  json += ",\n\"edges\": " + base::json_list(graph.edges, edge);
  json += ",\n\"run_order\": " + base::json_list(graph.run_order, number);
  const auto block = [](const RepeatedBlock& b) {
    return "{\"first\": " + std::to_string(b.first) + ", \"period\": " + std::to_string(b.period) +
           ", \"count\": " + std::to_string(b.count) + "}";
  };
  return json + ",\n\"blocks\": " + base::json_list(graph.blocks, block) + "}\n";
}

std::string to_dot(const Graph& graph) {
  std::string dot = "digraph backward {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    dot += "  n" + std::to_string(i) + " [label=" + dot_label(node) + (node.leaf ? ", style=rounded" : "") +
           "];\n";
  }
  for (const GraphEdge& edge : graph.edges) {
    dot += "  n" + std::to_string(edge.from) + " -> n" + std::to_string(edge.to) + ";\n";
  }
  return dot + "}\n";
}

std::string to_html(const Graph& graph, const std::string& title) {
  const std::string json = "{\"title\": " + base::json_quoted(title) + ", \"graph\": " + to_json(graph) + "}";
  return page_of("Overdrive: graph of " + title, kGraphStyle, kGraphScript, json);
}

}  // namespace overdrive::inspect
