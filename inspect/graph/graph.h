// The graph of a backward as plain values: nodes, edges, shapes, the tensors that nodes saved, and the order in
// which a run takes the nodes. Owned by the caller; holds no tensor and no node. graph() may be called on any
// thread while no backward runs through the graph. Calls no hook: a tensor that a hook has packed stays unread.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::inspect {

// How a tensor looks. A size that is not known is -1.
struct TensorLook {
  std::vector<int64_t> shape;
  std::string dtype;
  std::string device;
  int64_t bytes = 0;  // elements times their size
};

// Whose memory a saved tensor is.
enum class Owner {
  kLeaf,     // a leaf of this graph, or a view of one
  kNode,     // the output of a node
  kNoGraph,  // a tensor without a gradient: data, a mask, a statistic
};

struct SavedLook {  // A tensor that a node saved.
  TensorLook look;
  Owner owner = Owner::kNoGraph;
  int32_t owner_node = -1;    // in Graph::nodes, or -1 where the owner is not in this graph
  bool first_holder = false;  // no node before this one, in the order of the run, saved the same memory
};

enum class SavedState {
  kKnown,     // `saved` is complete
  kReleased,  // a backward has released the tensors
  kPacked,    // hooks have some of the tensors; `saved` has the others
  kChanged,   // a tensor was changed in place since it was saved: a backward would fail
  kUnknown,   // the node's type cannot be asked
};

struct GraphNode {                    // A node, its look and its memory.
  std::string name;                   // LibTorch's: "MulBackward0"
  bool leaf = false;                  // adds its gradient to a tensor
  std::string leaf_name;              // as the caller named the leaf; else ""
  uint64_t sequence_nr = 0;           // of the thread that built the node; the largest for a leaf
  uint32_t order = 0;                 // in a backward of the whole graph on one thread
  bool own = false;                   // of a type that Overdrive may run itself, and without hooks
  std::vector<TensorLook> gradients;  // that come in: they look like the outputs of the forward operator
  std::vector<SavedLook> saved;       // each tensor once
  SavedState saved_state = SavedState::kUnknown;
  int64_t held_bytes = 0;  // of the memory that this node holds first and no leaf owns
  double seconds =
      std::numeric_limits<double>::quiet_NaN();  // add_times() or the caller sets it; colours the page
};

struct GraphEdge {    // The way of one gradient.
  uint32_t from = 0;  // the node whose output the gradient is
  uint32_t to = 0;
  uint32_t output = 0;  // of `from`
  uint32_t input = 0;   // of `to`
};

// `count` times the same `period` nodes, one after the other in the order of the run, leaves left out.
struct RepeatedBlock {
  uint32_t first = 0;  // a place in Graph::run_order
  uint32_t period = 0;
  uint32_t count = 0;
};

struct Graph {  // What graph() returns.
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
  std::vector<uint32_t> roots;
  std::vector<uint32_t> run_order;  // all nodes but leaves
  std::vector<RepeatedBlock> blocks;

  OVERDRIVE_API int64_t held_bytes() const;  // The sum over all nodes.
};

// Names for leaves, such as a module's named parameters.
using LeafNames = std::vector<std::pair<std::string, at::Tensor>>;

// An error when the tensor asks for no gradient.
OVERDRIVE_API Graph graph(const at::Tensor& tensor, const LeafNames& names = {});
OVERDRIVE_API Graph graph(const std::vector<at::Tensor>& tensors, const LeafNames& names = {});

// Sets `seconds` of the nodes that ran in a trace, found by name and sequence number, and returns how many they
// are. Leaves have no number and stay without a time. An error when the file cannot be read or has no such
// node.
OVERDRIVE_API size_t add_times(Graph& graph, const std::string& trace_file);

// For Graphviz.
OVERDRIVE_API std::string to_dot(const Graph& graph);
OVERDRIVE_API std::string to_json(const Graph& graph);
// One page that needs no network: zoom, search, repeated blocks folded, coloured by bytes or by time.
OVERDRIVE_API std::string to_html(const Graph& graph, const std::string& title = "backward");

}  // namespace overdrive::inspect

namespace overdrive {
using inspect::add_times;
using inspect::graph;
using inspect::to_dot;
using inspect::to_html;
using inspect::to_json;
}  // namespace overdrive
