// Which nodes a backward for some tensors alone (`inputs=`, grad()) needs. To the engine a part is one node,
// which it runs, and all that leads to it, as soon as any of the part's outputs leads to such a tensor; eager
// asks each output. Made and used inside a backward, on the thread of a node or a hook; reads the task's table
// and the graph.
#pragma once

#include "engine/base/torch_types.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace overdrive::replay {

// A node whose outputs do not all depend on the same inputs.
class NodeOfPaths : public base::HoldingNode {
 public:
  using base::HoldingNode::HoldingNode;
  // Whether the gradient with this number makes one for the edge.
  virtual bool leads(size_t gradient, size_t edge) const = 0;
};

class WantedPaths {
 public:
  WantedPaths();

  // Whether the engine says already what eager does: the backward is for all leaves.
  bool is_for_all() const { return !table_ || table_->empty(); }
  // Whether eager's backward takes the edge to a wanted tensor.
  bool lead_from(const base::Edge& edge) const;
  // Nodes that the engine runs and eager would leave out.
  std::vector<base::Node*> needless() const;
  // Whether the result of the backward is the gradient that comes to this node.
  bool captures(const base::Node& node) const;
  // Whether eager leaves out one of these nodes and a node before it. They are the outputs' of one call.
  bool leave_out(const std::vector<base::WeakNodePtr>& outputs) const;

 private:
  bool runs(const base::Node* node) const;

  const std::unordered_map<base::Node*, base::GraphTask::ExecInfo>* const table_;
};

// Whether the backward of this thread takes the edge from a node with this sequence number or a later one.
// False where no task tells what the backward runs.
bool leads_from_later(const base::Edge& edge, uint64_t first_later);

}  // namespace overdrive::replay
