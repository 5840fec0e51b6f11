// The graph that one call of a part's function has made: where it leaves the part, towards parameters and
// inputs, and the gradients that arrive there. Made and used on the calling thread, inside one call; the graph
// is the caller's.
#pragma once

#include "engine/base/torch_types.h"

#include <string>
#include <vector>

namespace overdrive::replay {

// An edge that leads out of the part: to the leaf, or to the input.
struct PartUse {
  static constexpr int kLeaf = -1;
  // Which input; kLeaf for a leaf that is none.
  int input;
  // The leaf; null for one that the function made itself, whose gradient nobody sees.
  c10::TensorImpl* leaf;
  // Which of the nodes with such edges it is, in the order in which they run.
  size_t node;

  bool leads_nowhere() const { return input == kLeaf && !leaf; }
  // Whether another run of the function has the same use.
  bool is_as(const PartUse& other) const {
    return input == other.input && node == other.node && (!leaf || leaf == other.leaf);
  }
};

class PartGraph {
 public:
  // Nodes from `first_node` on belong to the call.
  PartGraph(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, uint64_t first_node);

  // Why the part cannot stand for this graph; empty when it can.
  const std::string& refusal() const { return refusal_; }
  // In the order in which eager adds the gradients: one for each edge, so that sums over several calls round as
  // eager's do.
  const std::vector<PartUse>& uses() const { return uses_; }

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
  };
  void walk(const std::vector<at::Tensor>& inputs, uint64_t first_node);
  void note_exits(const base::NodePtr& node, const std::vector<at::Tensor>& inputs, uint64_t first_node,
                  std::vector<base::NodePtr>& found);
  void refuse(std::string reason);

  std::string refusal_;
  // Of each output; invalid where it needs no gradient.
  base::edge_list roots_;
  std::vector<Exit> exits_;
  std::vector<PartUse> uses_;
};

// Of each output, whether another one was made of it: then its gradient in eager is not only what comes from
// outside.
std::vector<bool> feed_others(const std::vector<at::Tensor>& outputs, uint64_t first_node);

}  // namespace overdrive::replay
