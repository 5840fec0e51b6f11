#include "engine/node/step.h"

#include "engine/host/gradient_tensors.h"

namespace overdrive::engine {

bool capture(const NodeStep& step, uint32_t index, base::variable_list& inputs) {
  const Plan& plan = step.plan;
  const PlannedNode& planned = plan.nodes[index];
  if (!planned.needed) {
    show_views(inputs);
    call_tensor_pre_hooks(*planned.node, inputs);
  }
  for (uint32_t at = plan.first_capture(index); at != NodeTable::kNone; at = plan.capture(at).next) {
    step.captured[plan.capture(at).output] = inputs[plan.capture(at).input_nr];
  }
  if (!planned.needed) inputs.clear();
  return planned.needed;
}

namespace {

// Tells the watches of a node's begin and end. Every watch whose before_node() returned hears of one end: when
// the node, another watch or the end of the thread unwinds, that is node_failed().
class WatchedNode {
 public:
  WatchedNode(const RunWatches& watches, const NodeFacts& facts) : watches_(watches), facts_(facts) {}
  ~WatchedNode() {
    while (begun_ > 0) watches_[--begun_]->node_failed(facts_);
  }
  WatchedNode(const WatchedNode&) = delete;
  WatchedNode& operator=(const WatchedNode&) = delete;

  void begin() {
    for (const auto& watch : watches_) {
      watch->before_node(facts_);
      ++begun_;
    }
  }
  void end(const base::variable_list& outputs, bool native) {
    while (begun_ > 0) watches_[--begun_]->after_node(facts_, outputs, native);
  }

 private:
  const RunWatches& watches_;
  const NodeFacts& facts_;
  size_t begun_ = 0;
};

}  // namespace

bool call_watched(const NodeStep& step, uint32_t index, base::variable_list& inputs,
                  base::variable_list& outputs) {
  const PlannedNode& planned = step.plan.nodes[index];
  base::Node& node = *planned.node;
  const NodeFacts facts{node, index, inputs};
  WatchedNode watched(*step.watches, facts);
  watched.begin();
  const bool native = call_node(node, planned.native, inputs, outputs, step.call);
  watched.end(outputs, native);
  return native;
}

void refuse_target(const base::Node& node) { TORCH_CHECK(false, "dependency not found for ", node.name()); }

void refuse_added_input(const Plan& plan, uint32_t target, const base::Edge& edge) {
  TORCH_CHECK(false, "a gradient goes to input ", edge.input_nr, " of ", plan.nodes[target].node->name(),
              ", which had ", plan.num_inputs(target),
              " inputs when the backward began. A hook must not lead an edge to an input that it added.");
}

}  // namespace overdrive::engine
