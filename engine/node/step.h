// One node of a plan, once and in stock's order: pre-hooks and captures, apply(), check, release, outputs.
// Shared by all runs; a run brings only a result sink: where the gradients of the node go, and who has to know
// that it is done. No state; runs on the thread that took the node's task.
#pragma once

#include "engine/node/node_call.h"
#include "engine/node/run_watch.h"
#include "engine/plan/plan.h"

#include <algorithm>

namespace overdrive::engine {

// The same for all nodes of a run.
struct NodeStep {
  Plan& plan;
  base::variable_list& captured;  // each element is written by the thread of its node
  NodeCall call;
  const RunWatches* watches = nullptr;  // hear of every node, or null
};

// Of the node that a thread runs. Empty between nodes; they keep their memory.
struct GradientLists {
  void clear() {
    inputs.clear();
    outputs.clear();
  }

  base::variable_list inputs;
  base::variable_list outputs;
};

// Before run_node(), by the run, on the thread of the node: moves the gradients in `slots` to `inputs`, so that
// AccumulateGrad is their only owner exactly when it is with stock. `slots` are those of the node alone.
inline void take_inputs(const Plan& plan, uint32_t index, at::Tensor* slots, base::variable_list& inputs) {
  const uint32_t count = plan.num_inputs(index);
  inputs.clear();
  inputs.reserve(count);
  for (uint32_t i = 0; i < count; ++i) inputs.push_back(std::move(slots[i]));
  add_late_inputs(*plan.nodes[index].node, inputs);
}

// Of run_node(): records the captures of a node in a pruned call. Returns whether the node must run. The hooks
// of a needed node run when it does, after its captures are taken.
bool capture(const NodeStep& step, uint32_t index, base::variable_list& inputs);

// Of run_node(): call_node() of a run that is watched. Each watch hears of the begin, and of one end.
bool call_watched(const NodeStep& step, uint32_t index, base::variable_list& inputs,
                  base::variable_list& outputs);

// A hook has led an edge to a node that is not in the plan, or that waits for nothing more.
[[noreturn]] void refuse_target(const base::Node& node);

// Of run_node(): the node that an edge leads to, which is the planned one, or another of this plan where a hook
// changed the edge. Reads only what is fixed when the run begins.
inline uint32_t target_of(const Plan& plan, uint32_t index, size_t edge_index, const base::Edge& edge) {
  const base::Node* const node = edge.function.get();
  if (edge_index < plan.num_edges(index)) [[likely]] {
    const uint32_t target = plan.targets[plan.nodes[index].first_edge + edge_index];
    if (target != NodeTable::kNone && plan.nodes[target].node == node) [[likely]]
      return target;
  }
  const uint32_t target = plan.find(node);
  if (target == NodeTable::kNone) refuse_target(*node);
  return target;
}

// Of a run's arrive(): counts a gradient that arrives at `planned`, which still waits. Returns whether it was
// the last. `incomplete` counts the nodes that some but not all gradients have reached. The caller holds the
// lock of the node, where several threads may arrive.
template <typename Counter>
bool count_arrival(PlannedNode& planned, Counter& incomplete) {
  planned.waiting -= 1;
  if (!planned.may_run) return false;
  const bool last = planned.waiting == 0;
  if (last) {
    if (planned.reached) --incomplete;
  } else if (!planned.reached) {
    planned.reached = true;
    ++incomplete;
  }
  return last;
}

// Before count_arrival(), under the same lock. Throws where the node waits for nothing more: a hook has led an
// edge there.
inline void check_still_waits(const PlannedNode& planned) {
  if (planned.waiting == 0) [[unlikely]]
    refuse_target(*planned.node);
}

// Of slot_of(): a hook gave `target` an input after the run was planned, and led the edge there.
[[noreturn]] void refuse_added_input(const Plan& plan, uint32_t target, const base::Edge& edge);

// Of a run's arrive(), under the same lock: the place of a gradient. The place behind a node's last one is its
// neighbour's.
inline size_t slot_of(const Plan& plan, uint32_t target, const base::Edge& edge) {
  if (edge.input_nr >= plan.num_inputs(target)) [[unlikely]]
    refuse_added_input(plan, target, edge);
  return plan.nodes[target].first_slot + edge.input_nr;
}

// Runs node `index` with the inputs in `lists`, which are used up. By the run, inside of ThreadRunState::run(),
// on the thread that took the task, without a lock. The results go to the sink, whose members are called on the
// same thread:
//
//   void called(bool native)
//     The node has run, before its gradients arrive. `native`: run_native ran it.
//   void arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient)
//     For each gradient of the node, in the order of its edges.
//   void ended()
//     The node made no gradients; or its inputs were captured, before it runs.
template <typename ResultSink>
void run_node(const NodeStep& step, uint32_t index, GradientLists& lists, ResultSink&& sink) {
  base::Node& node = *step.plan.nodes[index].node;
  auto& [inputs, outputs] = lists;
  if (step.plan.pruned()) {
    const bool needed = capture(step, index, inputs);
    if (step.plan.first_capture(index) != NodeTable::kNone) sink.ended();
    if (!needed) return;
  }
  struct Emptied {
    ~Emptied() { lists.clear(); }
    GradientLists& lists;
  } const emptied{lists};
  sink.called(step.watches == nullptr
                  ? call_node(node, step.plan.nodes[index].native, inputs, outputs, step.call)
                  : call_watched(step, index, inputs, outputs));
  inputs.clear();
  if (!step.call.keep_graph) node.release_variables();
  if (outputs.empty()) return sink.ended();
  if (torch::autograd::AnomalyMode::is_enabled() && torch::autograd::AnomalyMode::should_check_nan())
      [[unlikely]]
    check_for_nan(node, outputs);
  const base::edge_list& edges = node.next_edges();
  const size_t known = std::min(outputs.size(), edges.size());
  for (size_t i = 0; i < known; ++i) {
    if (!edges[i].is_valid()) continue;
    sink.arrive(target_of(step.plan, index, i, edges[i]), edges[i], std::move(outputs[i]));
  }
}

}  // namespace overdrive::engine
