#include "engine/plan/ready_heap.h"

#include <gtest/gtest.h>

#include <memory>
#include <queue>
#include <random>

namespace {

using overdrive::engine::ReadyHeap;
using overdrive::engine::TaskRank;

struct Task {
  TaskRank rank;
  int id = 0;
};

struct ComesLater {
  bool operator()(const Task& a, const Task& b) const { return runs_after(a.rank, b.rank); }
};

// What the host uses.
using HostQueue = std::priority_queue<Task, std::vector<Task>, ComesLater>;

TEST(ReadyHeap, GivesDeeperThenLaterTasksFirst) {
  ReadyHeap<Task> heap;
  heap.push({{0, 7}, 1});
  heap.push({{1, 2}, 2});
  heap.push({{0, 9}, 3});
  EXPECT_EQ(heap.pop().id, 2);
  EXPECT_EQ(heap.pop().id, 3);
  EXPECT_EQ(heap.pop().id, 1);
  EXPECT_TRUE(heap.empty());
}

// Ranks from a small range, so that most tasks tie with others; pushes and pops interleaved.
TEST(ReadyHeap, SettlesTiesAsTheHostsQueueDoes) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    ReadyHeap<Task> ours;
    HostQueue host;
    for (int id = 0; id < 300; ++id) {
      if (!host.empty() && random() % 5 < 2) {
        ASSERT_EQ(ours.pop().id, host.top().id) << "seed " << seed << ", step " << id;
        host.pop();
        continue;
      }
      const Task task{{static_cast<int32_t>(random() % 2), random() % 4}, id};
      ours.push(Task(task));
      host.push(task);
    }
    while (!host.empty()) {
      ASSERT_EQ(ours.pop().id, host.top().id) << "seed " << seed;
      host.pop();
    }
    EXPECT_TRUE(ours.empty());
  }
}

struct OwningTask {
  TaskRank rank;
  std::unique_ptr<int> id;
};

TEST(ReadyHeap, MovesTasksThatCannotBeCopied) {
  ReadyHeap<OwningTask> heap;
  for (int i = 0; i < 20; ++i)
    heap.push({{0, static_cast<uint64_t>(i * 7 % 20)}, std::make_unique<int>(i * 7 % 20)});
  for (int expected = 19; expected >= 0; --expected) EXPECT_EQ(*heap.pop().id, expected);
}

TEST(ReadyHeap, KeepsItsOrderWhenADeeperGroupDies) {
  ReadyHeap<Task> heap;
  for (int i = 0; i < 8; ++i) heap.push({{i % 2, static_cast<uint64_t>(i)}, i});
  for (Task& task : heap.tasks()) {
    if (task.rank.depth == 1) task.rank.depth = TaskRank::kDeadDepth;
  }
  std::vector<int> order;
  while (!heap.empty()) order.push_back(heap.pop().id);
  EXPECT_EQ(order, (std::vector<int>{7, 5, 3, 1, 6, 4, 2, 0}));
}

}  // namespace
