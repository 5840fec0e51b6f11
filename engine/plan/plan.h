// A backward call turned into flat tables: which nodes take part, what each waits for, where its
// incoming gradients lie, and, for a pruned call, which are needed and what is captured. A pure
// function of the graph: no threads, no locks, nothing runs. Owned by a run.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/host/shared_object.h"
#include "engine/plan/growing_array.h"
#include "engine/plan/node_table.h"

#include <cstdint>
#include <vector>

namespace overdrive::engine {

// One node of the graph. Raw: Note [Lifetime] in run.h says who keeps it alive. Small, because a graph
// may have millions; counts are the distance to the next node's beginning.
struct PlannedNode {
  base::Node* node;
  uint32_t first_slot;    // of its gradients
  uint32_t first_edge;    // in Plan::targets
  uint32_t waiting : 28;  // gradients that have not arrived; counted down by the run
  uint32_t shared : 1;    // several edges may lead here
  uint32_t may_run : 1;   // needed or captured; always in a call that is not pruned
  uint32_t needed : 1;    // apply() is called
  uint32_t reached : 1;   // a gradient has arrived (set by the run)
  uint16_t native = 0;    // the number of its type among native nodes; 0: none
  bool foreign = false;   // code from outside LibTorch runs with it: its own type's, or a hook's
};

// One wanted gradient of a pruned call.
struct Capture {
  uint32_t input_nr;  // of the node
  uint32_t output;    // in the result of the call
  uint32_t next;      // the node's next capture, or NodeTable::kNone
};

class Plan {
 public:
  struct Request {
    base::Node* root;
    // Not the caller's root but the one that stands in for several: it has no inputs.
    bool root_is_group;
    const base::edge_list& outputs;  // what inputs= or grad() asked for; empty: everything
    bool accumulate_grad;
    // The number of a node's type among native nodes, or null when there are to be none.
    uint16_t (*native_number)(const base::Node&) = nullptr;
  };

  // Reads the graph. The tables keep their memory for the next call.
  void build(const Request& request);
  // Forgets the graph, and the memory too when it is large.
  void clear();

  GrowingArray<PlannedNode> nodes;  // [0] is the root
  GrowingArray<uint32_t> targets;   // for each edge the node it leads to, or NodeTable::kNone

  uint32_t num_inputs(uint32_t node) const {
    return (node + 1 < nodes.size() ? nodes[node + 1].first_slot : num_slots_) - nodes[node].first_slot;
  }
  // 0 as well where the call does not look beyond this node.
  uint32_t num_edges(uint32_t node) const {
    return (node + 1 < nodes.size() ? nodes[node + 1].first_edge : static_cast<uint32_t>(targets.size())) -
           nodes[node].first_edge;
  }

  bool pruned() const { return pruned_; }
  // Whether every gradient that a needed node can compute is wanted. Then nodes need not ask.
  bool wants_everything() const;
  uint32_t num_slots() const { return num_slots_; }
  uint32_t num_captured() const { return num_captured_; }
  // A hook, or a node whose type is not LibTorch's own: foreign code will run.
  bool runs_foreign_code() const { return has_hooks_ || has_foreign_nodes_; }
  bool has_hooks() const { return has_hooks_; }
  // A node is on a device that has a queue of its own.
  bool has_device_nodes() const { return has_device_nodes_; }

  // The number of a node of this graph, or NodeTable::kNone. Looks at every node if it must: it is for edges
  // that were changed after the plan was made.
  uint32_t find(const base::Node* node) const;
  uint32_t first_capture(uint32_t node) const { return first_capture_[node]; }
  const Capture& capture(uint32_t index) const { return captures_[index]; }

 private:
  uint32_t add(const base::NodePtr& node);
  uint32_t add_shared(base::Node& node);
  uint32_t append(base::Node& node, bool shared);
  uint32_t find_shared(const base::Node* node) const {
    return table_.find(node, [this](uint32_t number) -> const void* { return nodes[number].node; });
  }
  void expand(uint32_t index, uint64_t min_topological_nr);
  void look_at(PlannedNode& planned, const Request& request, bool look_for_devices);
  void mark_outputs(const Request& request);
  void mark_needed();

  NodeTable table_;
  std::vector<uint32_t> first_capture_;
  std::vector<Capture> captures_;
  size_t expected_ = 0;
  uint32_t num_slots_ = 0;
  uint32_t num_captured_ = 0;
  bool pruned_ = false;
  bool has_hooks_ = false;
  bool has_foreign_nodes_ = false;
  bool has_device_nodes_ = false;
};

}  // namespace overdrive::engine
