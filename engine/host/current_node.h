// The place where get_current_node() looks, so that a run can write the node there that it runs. Each thread
// has a place of its own and uses no other.
#pragma once

#include "engine/base/torch_types.h"

#include <cstddef>
#include <cstring>
#include <vector>

namespace overdrive::engine::host {

// Note [Current node]: get_current_node() reads a thread-local of the host that only the host's loop sets. In a
// frame this variable names the frame for every node of the run. The variable has no exported name, but inside
// a frame its value is known: the frame. So a search finds the place in the host's thread-local block, once a
// process and by reading alone: it is the one place that holds each of several frames while the host's loop
// runs that frame. They are runs inside of the first frame, and hidden from profilers. Rejected: a thread for
// them. In a process that has ever had a second one, glibc's locks and its heap take twice as long, for ever.
// After that, a run notes its node with one store. The variable owns a reference to the frame. A run writes the
// bits of another node over this reference without counting them (since 2.13 a pointer to the node, before a
// std::shared_ptr's two pointers), and restores the frame's bits before the host looks. A copy by
// get_current_node() counts as usual. Rejected: a task of the host's loop for every node (4.3 us each).
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

// The search. For one thread.
class CurrentNodeSearch {
 public:
  // In the host's loop, while it runs `current`: keeps the places that hold this node.
  void look(base::Node& current);
  // After looks at several nodes, on any thread: the place is known, or known not to be there.
  void finish() const;
  // Whether a search is over.
  static bool is_over();

 private:
  std::vector<ptrdiff_t> places_;  // in the thread-local block
  bool has_looked_ = false;
};

// Returns this thread's place, which holds `frame` now. Null: the place is not known.
NodeBits* current_node_place(base::Node& frame);

}  // namespace overdrive::engine::host
