// A node that some backwards cannot run through, and that says so before the first node runs: nothing has been
// accumulated then. Mixed into a Node; asked in backwards that are pruned (grad(), inputs=) or create a graph,
// if they need the node, on the thread that called them. On other engines the node has to look for itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace overdrive::base {

class WholeGraphNode {
 public:
  WholeGraphNode(const WholeGraphNode&) = delete;
  WholeGraphNode& operator=(const WholeGraphNode&) = delete;

  // Throws when the backward that begins cannot go through this node. Its modes are already set.
  virtual void check_backward() const = 0;

  // Whether there are such nodes at all.
  static bool exist() { return alive().load(std::memory_order_relaxed) > 0; }

 protected:
  WholeGraphNode() { alive().fetch_add(1, std::memory_order_relaxed); }
  virtual ~WholeGraphNode() { alive().fetch_sub(1, std::memory_order_relaxed); }

 private:
  static std::atomic<int64_t>& alive() {
    static std::atomic<int64_t> nodes{0};
    return nodes;
  }
};

}  // namespace overdrive::base
