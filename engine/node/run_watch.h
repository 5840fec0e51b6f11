// The interface of an observer of a backward. One RunWatch follows one run; the run destroys it at its end. The
// threads of a run may call at once, each for its own nodes. A watch reads: it keeps no tensor and no node,
// since a gradient with a second owner is copied where it would be taken over. Without a watch a run pays one
// comparison a node.
#pragma once

#include "engine/plan/plan.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace overdrive::engine {

// A backward that begins. The plan's pointers to nodes are good until the node has run.
struct RunFacts {
  const Plan& plan;
  const base::edge_list& roots;
  uint64_t number;  // of the watched backwards of the process, from 1
  int32_t depth;    // how many backwards this one is nested in
  bool keep_graph;
  bool create_graph;
};

// A node on the thread that runs it, before its hooks and after them.
struct NodeFacts {
  base::Node& node;
  uint32_t index;                     // in the plan
  const base::variable_list& inputs;  // the sums that have arrived; used up when the node has run
};

class RunWatch {
 public:
  virtual ~RunWatch() = default;
  // Between two nodes of a thread, before node number `index`: an exception stops the backward and reaches the
  // caller as it is. No node is blamed for it.
  virtual void may_go_on(uint32_t /*index*/) {}
  // An exception from these two counts as an error of the node. One of after_node() and node_failed() follows
  // every before_node() that returned, on the same thread.
  virtual void before_node(const NodeFacts& /*facts*/) {}
  // `native`: the engine ran the node in the place of its apply().
  virtual void after_node(const NodeFacts& /*facts*/, const base::variable_list& /*outputs*/, bool /*native*/) {
  }
  virtual void node_failed(const NodeFacts& /*facts*/) noexcept {}
  // On the calling thread, after the last node and the callbacks of the backward. `error` is null, or the one
  // that the caller will get. An exception reaches the caller, unless there is an error already.
  virtual void end(const std::exception_ptr& /*error*/) {}
};

// Makes a watch for a run of this plan, or returns null: for fetching ahead, which hears of may_go_on() alone.
// May ask serial_order() for the order. Throws nothing.
using RunWatchSource = std::unique_ptr<RunWatch> (*)(const Plan& plan) noexcept;

// In the order in which their watchers were added; after a node and at the end the other way round.
using RunWatches = std::vector<std::unique_ptr<RunWatch>>;

}  // namespace overdrive::engine
