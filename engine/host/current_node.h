// The place where get_current_node() looks, so that a run can write the node there that it runs. Each thread
// has a place of its own and uses no other.
#pragma once

#include "engine/base/torch_types.h"

#include <cstring>

namespace overdrive::engine::host {

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
