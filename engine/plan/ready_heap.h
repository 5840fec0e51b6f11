// A heap of ready tasks, best first. Owned by a thread, which alone uses the heap: a nested backward pushes
// into the heap of the backward around it. Knows ranks only; leaves the tasks to the run.
//
// Note [Ties]: ranks are often equal, because every AccumulateGrad has the largest sequence number, and because
// threads that build graphs number their nodes alike. The order of equal ranks decides the order of additions,
// and so the bits of a gradient. The host keeps its tasks in a std::priority_queue of libstdc++, and the moves
// of that heap decide the order of equal ranks. sift_up() and sift_down() make the same moves: a parent yields
// only to a child of strictly higher rank, and of two equal children the right one moves up. Both functions are
// Overdrive's own, so another C++ library changes nothing. Rejected: the node's index as a tie-break, because
// its order differs from the host's in about half of all random graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace overdrive::engine {

// The rank of a ready node: a deeper nested node runs first, then a node of a later forward operator.
// Leaves ties to ReadyHeap.
struct TaskRank {
  // The depth of a task of a failed backward. Such a task sorts to the front, where the run drops it.
  static constexpr int32_t kDeadDepth = std::numeric_limits<int32_t>::max();

  int32_t depth = 0;         // the number of backwards around this one
  uint64_t sequence_nr = 0;  // of the node; AccumulateGrad has the largest
};

constexpr bool runs_after(const TaskRank& a, const TaskRank& b) {
  return a.depth == b.depth ? a.sequence_nr < b.sequence_nr : a.depth < b.depth;
}

static_assert(runs_after({0, 9}, {1, 0}), "depth wins over sequence");
static_assert(runs_after({0, 1}, {0, 2}), "later forward ops run first");
static_assert(!runs_after({0, 1}, {0, 1}), "equal ranks are equal");

// Task: movable, with a member `TaskRank rank`.
template <typename Task>
class ReadyHeap {
 public:
  bool empty() const { return tasks_.empty(); }
  size_t size() const { return tasks_.size(); }
  void clear() { tasks_.clear(); }

  void push(Task&& task) {
    tasks_.push_back(std::move(task));
    const size_t last = tasks_.size() - 1;
    if (last != 0) sift_up(last, std::move(tasks_[last]));
  }

  // The best task. Must not be empty.
  const Task& top() const { return tasks_.front(); }

  // Must not be empty.
  Task pop() {
    Task top = std::move(tasks_.front());
    const size_t rest = tasks_.size() - 1;
    if (rest != 0) sift_down(rest, std::move(tasks_.back()));
    tasks_.pop_back();
    return top;
  }

  // All waiting tasks, in the order of the heap's array. A change of rank must keep the heap a heap.
  std::vector<Task>& tasks() { return tasks_; }

 private:
  // Puts `task` into the hole at `hole`, or above it.
  void sift_up(size_t hole, Task task) {
    while (hole > 0) {
      const size_t parent = (hole - 1) / 2;
      if (!runs_after(tasks_[parent].rank, task.rank)) break;
      tasks_[hole] = std::move(tasks_[parent]);
      hole = parent;
    }
    tasks_[hole] = std::move(task);
  }

  // Fills the hole at the top of the first `count` tasks with the better child, level by level. Puts `task`
  // into the hole that is left at a leaf, or above it.
  void sift_down(size_t count, Task task) {
    size_t hole = 0;
    size_t right = 2;
    while (right < count) {
      const size_t better = runs_after(tasks_[right].rank, tasks_[right - 1].rank) ? right - 1 : right;
      tasks_[hole] = std::move(tasks_[better]);
      hole = better;
      right = 2 * hole + 2;
    }
    if (right == count) {  // the last child has no sibling
      tasks_[hole] = std::move(tasks_[right - 1]);
      hole = right - 1;
    }
    sift_up(hole, std::move(task));
  }

  std::vector<Task> tasks_;
};

}  // namespace overdrive::engine
