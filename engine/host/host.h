// LibTorch's insides, as far as they can only be learned at run time: who owns the current
// graph task, where the current node is kept, which nodes are LibTorch's own, whether compiled
// autograd is on. With host_frame.*, the only engine file that reads such things;
// docs/host_contract.md has a row for each. Everything here may be called from any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/ThreadLocalState.h>

#include <cstring>

namespace overdrive::engine::host {

// The graph task that is current on this thread, or null outside a backward.
base::GraphTask* current_graph_task();

// Before 2.13 the host turns named tensors off around each node's apply(), a frame's too; hooks run with what
// the caller had, and the nodes in a frame turn names off for themselves. Made by the thread that enters a
// frame, beforehand; in the frame's apply(), state() gives hooks their state back for the scope of what it
// returns.
#ifdef OVERDRIVE_SHARED_NODES
class NamesOfHooks {
 public:
  at::ThreadLocalStateGuard state() const {
    at::NamesMode::set_enabled(on_);  // no part of the state, as the key is
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

// True while a compiled autograd function is set: stock hands the whole call to it.
bool compiled_autograd_is_on();
// False where LibTorch's build does not let us see the above.
bool compiled_autograd_is_visible();

// True when `engine` is the one that `import torch` brings.
bool is_python_engine(const base::Engine& engine);

// True when some device of this process has queues of its own (all but CPU, meta and lazy).
bool has_device_with_queue();
// True when nodes on this type of device run on the calling thread in stock, too.
bool runs_on_caller(c10::DeviceType type);

// Whether the caller's stream may wait for a leaf's. Since 2.15 the host does not let it when exactly one of
// them records a graph, which the wait would spoil: an error or, where the program asked for it, a warning.
bool may_wait_for_leaf(const c10::Stream& caller, const c10::Stream& leaf);

// What a plan has to know about a node's type.
enum class NodeKind {
  kHost,            // LibTorch's own code
  kAccumulateGrad,  // LibTorch's own; its hooks live in the tensor
  kForeign,         // a type from elsewhere, or one that wraps a node which may be
};
NodeKind kind_of(const base::Node& node);

// Note [Current node]: get_current_node() reads a thread-local of the host that only its own
// loop sets. In a frame it would name the frame, for every node of the run. The variable has no
// exported name, but inside the frame its value is known (the frame), so its place in the host's
// thread-local block can be found, once a process, and checked by writing another node and reading it
// back through get_current_node(). From then on a run notes its node with one store.
// The reference in there stays the frame's: we put the bits of another over it, which count for nothing
// (since 2.13 a pointer to the node, before that a std::shared_ptr's two), and put the frame's back before the
// host looks. What get_current_node() copies from there counts as it should. Rejected: a task of the host's own
// loop for every node (4.3 us each).
//
// The bits of a NodePtr.
struct NodeBits {
  base::Node* node = nullptr;
#ifdef OVERDRIVE_SHARED_NODES
  void* owner = nullptr;  // what counts; a std::weak_ptr has the same
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

// Returns this thread's place, which holds `frame` now, or null when it cannot be found.
NodeBits* find_current_node_place(base::Node& frame);

}  // namespace overdrive::engine::host
