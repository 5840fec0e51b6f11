// The graph that one call of a part's function has made: where it leaves the part, towards parameters and
// inputs, and the gradients that arrive there. Made and used on the calling thread, inside one call; the graph
// is the caller's.
#pragma once

#include "engine/base/torch_types.h"

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

namespace overdrive::replay {

// An edge that leads out of the part: to the leaf, or to the input.
struct PartUse {
  static constexpr int kLeaf = -1;
  // Which input; kLeaf for a leaf that is none.
  int input;
  // The leaf.
  c10::TensorImpl* leaf;
  // Uses of one node have one number: eager hands their gradients on together.
  int node;

  bool operator==(const PartUse&) const = default;
};

// On the node, or on the tensor whose gradient it takes.
bool has_hooks(base::Node& node);
// Whether the node's backward is code of Python.
bool is_python_function(const base::Node& node);

class PartGraph {
 public:
  // Whether a leaf was made in the call.
  using IsInner = std::function<bool(const at::Tensor& leaf)>;

  // Nodes from `first_node` on belong to the call.
  PartGraph(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, uint64_t first_node,
            const IsInner& is_inner);

  // Why the part cannot stand for this graph; empty when it can.
  const std::string& refusal() const { return refusal_; }
  // In the order in which eager adds the gradients: one for each edge, so that sums over several calls round as
  // eager's do.
  const std::vector<PartUse>& uses() const { return uses_; }
  // Leaves that the call has made. Their gradients are nobody's as soon as the graph is gone.
  const std::vector<at::Tensor>& inner_leaves() const { return inner_leaves_; }
  // Whether autocast keeps a cast of a leaf that the call has made.
  bool leaves_casts() const;
  // Of each output, the outputs whose backward frees something that its own needs, itself included.
  std::vector<std::vector<bool>> shared_nodes() const;
  // Of each output, the uses whose gradients its backward makes.
  std::vector<std::vector<bool>> leads() const;
  // Whether a backward frees the function of a node, as that of a change in a view: it saves nothing else.
  bool frees_a_function() const;
  // Why the part's node would run what eager leaves alone, when not every output has a gradient; else empty.
  std::string refusal_of_lonely_outputs() const;

  // A backward from the outputs to the edges, which leaves parameters and hooks alone. The gradients of the
  // uses in turn, undefined where they are not wanted: eager's nodes leave those out. Outputs with an undefined
  // gradient are left out, too.
  std::vector<at::Tensor> pull(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                               bool keep_graph, bool create_graph) const;

 private:
  struct Exit {
    base::NodePtr node;
    size_t edge;
    // The leaf or the input.
    at::Tensor tensor;
    // A leaf of the call's own.
    bool is_inner = false;
  };
  void walk(const std::vector<at::Tensor>& inputs, uint64_t first_node, const IsInner& is_inner);
  void note_exits(const base::NodePtr& node, const std::vector<at::Tensor>& inputs, uint64_t first_node,
                  const IsInner& is_inner, std::vector<base::NodePtr>& found);
  void sort_exits();
  // Of each output, the nodes of the call that its backward runs.
  std::vector<std::unordered_set<const base::Node*>> reached() const;
  void refuse(std::string reason);

  std::string refusal_;
  // Of each output; invalid where it needs no gradient.
  base::edge_list roots_;
  // Nodes of the call, without those of leaves.
  std::vector<base::NodePtr> nodes_;
  std::vector<Exit> exits_;
  std::vector<at::Tensor> inner_leaves_;
  std::vector<PartUse> uses_;
};

// Of each output, whether another one was made of it: then its gradient in eager is not only what comes from
// outside.
std::vector<bool> feed_others(const std::vector<at::Tensor>& outputs, uint64_t first_node);
// Of each output, the outputs that it was made of.
std::vector<std::vector<bool>> made_of(const std::vector<at::Tensor>& outputs, uint64_t first_node);

}  // namespace overdrive::replay
