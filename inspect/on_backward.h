// Functions of the program that are called at the begin and end of a backward and around each node. The scope
// that on_backward() returns owns them; any thread may make and leave scopes. Leaves the backward as it is:
// results are stock's, and a function that throws ends the backward with its exception.
#pragma once

#include "engine/base/export.h"

#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace overdrive::inspect {

struct BackwardInfo {  // Facts about a backward, good for the length of a call.
  uint64_t number;     // of the backward; nested ones have their own
  size_t nodes;        // that may run
  int depth;           // how many backwards this one is nested in
  bool keep_graph;
  bool create_graph;
};

struct NodeInfo {  // A node and its backward, good for the length of a call.
  const BackwardInfo& backward;
  torch::autograd::Node& node;
};

// Each may be empty. begin and end run on the thread that called the backward: end after the last node and the
// callbacks of the backward, with the error that the caller will get, or null. before_node and after_node run
// on the thread of the node, which is another one for devices with workers, so several calls may be under way
// at once. Order around one node: before_node, the node's own pre-hooks, the node, its post-hooks, after_node.
// No after_node follows a node that throws. Several scopes: before_node in the order in which the scopes were
// made, after_node and end the other way round.
struct BackwardHooks {
  std::function<void(const BackwardInfo&)> begin = {};
  std::function<void(const BackwardInfo&, const std::exception_ptr& error)> end = {};
  // The gradients that the node gets. A copy of a tensor that outlives the call costs the engine one: it can
  // not hand over memory that has another owner.
  std::function<void(const NodeInfo&, const torch::autograd::variable_list& inputs)> before_node = {};
  // The gradients that the node returned.
  std::function<void(const NodeInfo&, const torch::autograd::variable_list& outputs)> after_node = {};
  bool only_this_thread = false;  // only backwards that this thread begins
};

// While it lives, every backward that begins on Overdrive calls the hooks. A backward that is under way when
// the scope ends calls them until it ends.
class OVERDRIVE_API BackwardScope {
 public:
  explicit BackwardScope(BackwardHooks hooks);
  ~BackwardScope();
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  class Watching;
  std::shared_ptr<Watching> watching_;
};
// Opens a scope of these hooks, on any thread.
[[nodiscard]] inline BackwardScope on_backward(BackwardHooks hooks) { return BackwardScope(std::move(hooks)); }

}  // namespace overdrive::inspect
