#include "engine/plan/plan.h"

#include "engine/base/cache_lines.h"
#include "engine/base/taskless_node.h"
#include "engine/host/host_rules.h"

#include <algorithm>
#include <limits>

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// Tables above this many nodes are not kept between backwards.
constexpr size_t kKeptNodes = size_t{1} << 16;

// Nothing below the shallowest wanted node can lead to a wanted node.
uint64_t min_topological_nr(const edge_list& outputs) {
  if (outputs.empty()) return 0;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Edge& output : outputs) {
    TORCH_CHECK(output.function, "Overdrive was asked for the gradient of an edge that leads nowhere.");
    least = std::min(least, output.function->topological_nr());
  }
  return least;
}

bool has_hooks(Node& node, host::NodeKind kind) {
  if (!node.pre_hooks().empty() || !node.post_hooks().empty() || !node.retains_grad_hooks().empty())
    return true;
  // Of LibTorch's own nodes only AccumulateGrad overrides these two.
  if (kind == host::NodeKind::kHost) return !node.Node::tensor_pre_hooks().empty();
  return !node.tensor_pre_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

// Of a node whose type is not LibTorch's.
bool is_taskless(const Node& node) {
  if (!base::TasklessNode::exist()) return false;
  const auto* ours = dynamic_cast<const base::TasklessNode*>(&node);
  return ours != nullptr && ours->needs_no_task();
}

// While one node is looked at, the edges of the second after it come into the cache, and what add() and
// append() read of the children of the next.
void fetch_soon(const Plan& plan, uint32_t index) {
  constexpr size_t kFields = 192;
  if (index + 2 < plan.nodes.size()) base::fetch_lines(plan.nodes[index + 2].node->next_edges().data(), 1);
  if (index + 1 >= plan.nodes.size()) return;
  for (const Edge& edge : plan.nodes[index + 1].node->next_edges()) {
    base::fetch_lines(edge.function.get(), kFields);
  }
}

}  // namespace

void Plan::build(const Request& request) {
  pruned_ = !request.outputs.empty();
  table_.reset(expected_);
  const uint64_t least = min_topological_nr(request.outputs);
  const bool look_for_devices = host::has_device_with_queue();
  add_shared(*request.root);  // it may be asked for as an output
  if (request.root_is_group) num_slots_ = 0;
  // `nodes` is the queue as well.
  for (uint32_t index = 0; index < nodes.size(); ++index) {
    fetch_soon(*this, index);
    look_at(nodes[index], request, look_for_devices);
    expand(index, least);
  }
  expected_ = table_.count();
  if (!pruned_) return;
  mark_outputs(request);
  mark_needed();
}

// The node has an owner for each edge that leads to it, and for each of the caller's outputs. Where there is
// one owner, the edge that led here was the only way, and the node need not be known again: in most graphs that
// is most nodes.
uint32_t Plan::add(const base::NodePtr& node) {
  return node.use_count() == 1 ? append(*node, /*shared=*/false) : add_shared(*node);
}

uint32_t Plan::add_shared(Node& node) {
  const auto address_of = [this](uint32_t number) -> const void* {
    return nodes[number].shared ? nodes[number].node : nullptr;
  };
  const auto next = static_cast<uint32_t>(nodes.size());
  table_.make_room(next, address_of);
  const uint32_t index = table_.find_or_add(&node, next, address_of);
  return index == next ? append(node, /*shared=*/true) : index;
}

uint32_t Plan::append(Node& node, bool shared) {
  nodes.push_back({&node, num_slots_, 0, 0, shared, !pruned_, !pruned_, false, 0});
  num_slots_ += node.num_inputs();
  return static_cast<uint32_t>(nodes.size() - 1);
}

uint32_t Plan::find(const Node* node) const {
  const uint32_t index = find_shared(node);
  if (index != NodeTable::kNone) return index;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].node == node) return i;
  }
  return NodeTable::kNone;
}

void Plan::expand(uint32_t index, uint64_t least) {
  Node& node = *nodes[index].node;
  nodes[index].first_edge = static_cast<uint32_t>(targets.size());
  // Asking also tells the host that this node's place in the graph is settled, as stock's walk does.
  if (node.topological_nr() < least) return;
  for (const Edge& edge : node.next_edges()) {
    if (!edge.is_valid()) {
      targets.push_back(NodeTable::kNone);
      continue;
    }
    const uint32_t target = add(edge.function);
    ++nodes[target].waiting;
    targets.push_back(target);
  }
}

void Plan::look_at(PlannedNode& planned, const Request& request, bool look_for_devices) {
  Node& node = *planned.node;
  if (request.native_number != nullptr) planned.native = request.native_number(node);
  const host::NodeKind kind = host::kind_of(node);
  const bool hooked = engine::has_hooks(node, kind);
  planned.foreign = hooked || (kind == host::NodeKind::kForeign && (pruned_ || !is_taskless(node)));
  has_foreign_nodes_ |= planned.foreign && !hooked;
  has_hooks_ |= hooked;
  if (look_for_devices && !has_device_nodes_) {
    has_device_nodes_ = !host::runs_on_caller(node.device().type());
  }
}

void Plan::mark_outputs(const Request& request) {
  first_capture_.assign(nodes.size(), NodeTable::kNone);
  // Backwards, so that a node's captures are chained in the order in which they were asked for.
  for (size_t i = request.outputs.size(); i-- > 0;) {
    const Edge& output = request.outputs[i];
    const uint32_t index = find_shared(output.function.get());
    if (index == NodeTable::kNone) continue;  // not part of this graph: its gradient stays undefined
    nodes[index].may_run = true;
    if (request.accumulate_grad) {
      nodes[index].needed = true;
      continue;
    }
    captures_.push_back({output.input_nr, static_cast<uint32_t>(i), first_capture_[index]});
    first_capture_[index] = static_cast<uint32_t>(captures_.size() - 1);
  }
  if (!request.accumulate_grad) num_captured_ = static_cast<uint32_t>(request.outputs.size());
}

// A node is needed when a node that may run is among its children. Depth first without
// recursion; a child's answer is final when it is left.
void Plan::mark_needed() {
  struct Visit {
    uint32_t node;
    uint32_t edge;
  };
  std::vector<Visit> path{{0, 0}};
  std::vector<bool> seen(nodes.size());
  while (!path.empty()) {
    Visit& visit = path.back();
    PlannedNode& parent = nodes[visit.node];
    const uint32_t num_edges = this->num_edges(visit.node);
    uint32_t child = NodeTable::kNone;
    while (visit.edge < num_edges) {
      const uint32_t target = targets[parent.first_edge + visit.edge++];
      if (target == NodeTable::kNone) continue;
      if (!seen[target]) {
        child = target;
        break;
      }
      if (nodes[target].may_run) parent.needed = parent.may_run = true;
    }
    if (child != NodeTable::kNone) {
      seen[child] = true;
      path.push_back({child, 0});
      continue;
    }
    const bool runs = parent.may_run;
    path.pop_back();
    if (runs && !path.empty()) nodes[path.back().node].needed = nodes[path.back().node].may_run = true;
  }
}

bool Plan::wants_everything() const {
  for (uint32_t index = 0; index < nodes.size(); ++index) {
    if (!nodes[index].needed) continue;
    for (uint32_t edge = 0; edge < num_edges(index); ++edge) {
      const uint32_t target = targets[nodes[index].first_edge + edge];
      if (target != NodeTable::kNone && !nodes[target].may_run) return false;
    }
  }
  return true;
}

void Plan::clear() {
  if (nodes.capacity() > kKeptNodes) {
    nodes.release_memory();
    table_.release_memory();
    expected_ = 0;
  }
  if (targets.capacity() > 4 * kKeptNodes) targets.release_memory();
  nodes.clear();
  targets.clear();
  first_capture_.clear();
  captures_.clear();
  num_slots_ = num_captured_ = 0;
  has_hooks_ = has_foreign_nodes_ = has_device_nodes_ = false;
}

}  // namespace overdrive::engine
