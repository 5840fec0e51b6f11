// Facts about LibTorch that only a running LibTorch tells: the current graph task, the place of the current
// node, the kind of a node, the state of compiled autograd. No owner. Any thread. Leaves the graph task of a
// backward to host_frame.*; docs/host_contract.md has a row for each fact.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/ThreadLocalState.h>

#include <cstring>

namespace overdrive::engine::host {

// The graph task that is current on this thread, or null outside a backward.
base::GraphTask* current_graph_task();

// Before 2.13 the host turns named tensors off around each node's apply(), and so around a frame's. Hooks must
// run in the caller's state; nodes in a frame turn names off themselves. The thread that enters a frame makes
// this object before. Inside the frame, state() restores the caller's state for the scope of its result.
#ifdef OVERDRIVE_SHARED_NODES
class NamesOfHooks {
 public:
  at::ThreadLocalStateGuard state() const {
    at::NamesMode::set_enabled(on_);  // the state has the key, and not this switch
    return at::ThreadLocalStateGuard(current_graph_task()->thread_locals_);
  }

 private:
  bool on_ = at::NamesMode::is_enabled();
};
#else
struct NamesOfHooks {
  struct State {};
  State state() const { return {}; }
};
#endif

// True while a compiled autograd function is set: stock gives the whole call to that function.
bool compiled_autograd_is_on();
// False where LibTorch's build hides compiled autograd.
bool compiled_autograd_is_visible();

// True when `engine` is Python's, from `import torch`.
bool is_python_engine(const base::Engine& engine);

// True when some device of this process has queues of its own (all but CPU, meta and lazy).
bool has_device_with_queue();
// True when nodes on this type of device run on the calling thread in stock, too.
bool runs_on_caller(c10::DeviceType type);

// Whether the caller's stream may wait for a leaf's stream. Since 2.15 the host refuses the wait when exactly
// one of the two records a graph, because the wait would spoil the graph. The refusal is an error, or a warning
// where the program asked for one.
bool may_wait_for_leaf(const c10::Stream& caller, const c10::Stream& leaf);

// The kind of a node's type, for plans.
enum class NodeKind {
  kHost,            // LibTorch's own code
  kAccumulateGrad,  // LibTorch's own; its hooks live in the tensor
  kForeign,         // a type of another library, or a wrapper of such a node
};
NodeKind kind_of(const base::Node& node);

// Note [Current node]: get_current_node() reads a thread-local of the host that only the host's loop sets. In a
// frame this variable names the frame for every node of the run. The variable has no exported name, but inside
// the frame its value is known: the frame. So find_current_node_place() finds the place in the host's
// thread-local block, once a process, and checks the place: it writes another node there and reads the node
// back through get_current_node(). After that, a run notes its node with one store.
// The variable owns a reference to the frame. A run writes the bits of another node over this reference without
// counting them (since 2.13 a pointer to the node, before a std::shared_ptr's two pointers), and restores the
// frame's bits before the host looks. A copy by get_current_node() counts as usual. Rejected: a task of the
// host's loop for every node (4.3 us each).
//
// The bits of a NodePtr.
struct NodeBits {
  base::Node* node = nullptr;
#ifdef OVERDRIVE_SHARED_NODES
  void* owner = nullptr;  // the control block; a std::weak_ptr has the same
#endif
  friend bool operator==(const NodeBits&, const NodeBits&) = default;
};
#ifdef OVERDRIVE_SHARED_NODES
inline NodeBits bits_of(base::Node& node) {
  const base::WeakNodePtr self = node.weak_from_this();
  static_assert(sizeof(NodeBits) == sizeof self);
  NodeBits bits;
  std::memcpy(static_cast<void*>(&bits), static_cast<const void*>(&self), sizeof bits);
  return bits;
}
#else
inline NodeBits bits_of(base::Node& node) { return {&node}; }
#endif
static_assert(sizeof(NodeBits) == sizeof(base::NodePtr));

// Returns this thread's place, which holds `frame` now. Null: the place was not found.
NodeBits* find_current_node_place(base::Node& frame);

}  // namespace overdrive::engine::host
