// A node of Overdrive's whose apply() is, to the engine, as one of LibTorch's own: nothing in it asks for the
// graph task of its backward, as long as all gradients are wanted, without a graph. So a backward of such nodes
// needs none. Mixed into a Node.
#pragma once

#include <atomic>
#include <cstdint>

namespace overdrive::base {

class TasklessNode {
 public:
  TasklessNode(const TasklessNode&) = delete;
  TasklessNode& operator=(const TasklessNode&) = delete;

  virtual bool needs_no_task() const = 0;

  // Whether such a node exists in the process.
  static bool exist() { return alive().load(std::memory_order_relaxed) > 0; }

 protected:
  TasklessNode() { alive().fetch_add(1, std::memory_order_relaxed); }
  virtual ~TasklessNode() { alive().fetch_sub(1, std::memory_order_relaxed); }

 private:
  static std::atomic<int64_t>& alive() {
    static std::atomic<int64_t> nodes{0};
    return nodes;
  }
};

}  // namespace overdrive::base
