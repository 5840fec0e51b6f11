// A node that refuses some backwards before the first node runs, so before any accumulation. Mixed into a Node.
// A backward that is pruned (grad(), inputs=) or creates a graph asks its needed nodes, on the calling thread.
// On other engines the node must check in its apply().
#pragma once

#include <atomic>
#include <cstdint>

namespace overdrive::base {

class WholeGraphNode {
 public:
  WholeGraphNode(const WholeGraphNode&) = delete;
  WholeGraphNode& operator=(const WholeGraphNode&) = delete;

  // Throws when the beginning backward cannot run through this node. The modes of the backward are set.
  virtual void check_backward() const = 0;

  // Whether such a node exists in the process.
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
