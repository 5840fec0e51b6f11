// The queue of a device: order, waiting, and waking, without LibTorch.
#include "engine/devices/device_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <memory>
#include <thread>
#include <vector>

namespace {

using overdrive::engine::DeviceQueue;
using overdrive::engine::TaskRank;
using overdrive::engine::WaitPolicy;

struct Task {
  TaskRank rank;
  int id = 0;
};
using Queue = DeviceQueue<Task>;

const auto never = [] { return false; };
const auto any = [](const Task&) { return true; };

TEST(DeviceQueue, GivesTheDeepestThenTheLatestForwardOp) {
  Queue queue;
  queue.push({{0, 7}, 1});
  queue.push({{1, 2}, 2});
  queue.push({{0, 9}, 3});
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) order.push_back(queue.take(any, never, WaitPolicy::kSleep)->id);
  EXPECT_EQ(order, (std::vector<int>{2, 3, 1}));
}

TEST(DeviceQueue, GivesNothingOnceTheWaitIsOverEvenIfTasksAreThere) {
  Queue queue;
  queue.push({{0, 1}, 1});
  EXPECT_FALSE(queue
                   .take(
                       any, [] { return true; }, WaitPolicy::kLookAround)
                   .has_value());
  EXPECT_TRUE(queue.take(any, never, WaitPolicy::kSleep).has_value());
}

TEST(DeviceQueue, SleepsForNobodyWithPolicyNone) {
  Queue queue;
  EXPECT_FALSE(queue.take(any, never, WaitPolicy::kNone).has_value());
}

TEST(DeviceQueue, GivesTheBestTaskOnlyIfItIsWanted) {
  const auto not_5 = [](const Task& task) { return task.id != 5; };
  Queue queue;
  queue.push({{0, 1}, 5});
  EXPECT_FALSE(queue.take(not_5, never, WaitPolicy::kSleep).has_value());
  queue.push({{0, 2}, 6});
  EXPECT_EQ(queue.take(not_5, never, WaitPolicy::kNone)->id, 6);
  EXPECT_EQ(queue.take(any, never, WaitPolicy::kNone)->id, 5);
}

TEST(DeviceQueue, WakesASleeperForATaskThatItDoesNotWant) {
  Queue queue;
  std::thread taker([&] {
    EXPECT_FALSE(queue.take([](const Task&) { return false; }, never, WaitPolicy::kSleep).has_value());
  });
  queue.push({{0, 1}, 3});
  taker.join();
}

TEST(DeviceQueue, WakesASleeperForATask) {
  Queue queue;
  int got = 0;
  std::thread taker([&] { got = queue.take(any, never, WaitPolicy::kSleep)->id; });
  queue.push({{0, 1}, 3});
  taker.join();
  EXPECT_EQ(got, 3);
}

TEST(DeviceQueue, WakesASleeperWhenTheWaitIsOver) {
  Queue queue;
  std::atomic<bool> over{false};
  std::thread taker([&] {
    EXPECT_FALSE(queue
                     .take(
                         any, [&] { return over.load(); }, WaitPolicy::kSleep)
                     .has_value());
  });
  queue.wake();  // for nothing, if it sleeps already
  over = true;
  queue.wake();
  taker.join();
}

TEST(DeviceQueue, ExchangesATaskForTheBestOne) {
  Queue queue;
  EXPECT_EQ(queue.exchange({{0, 5}, 1}, any)->id, 1);
  queue.push({{0, 4}, 2});
  EXPECT_EQ(queue.exchange({{0, 5}, 3}, any)->id, 3);
  EXPECT_EQ(queue.exchange({{0, 3}, 4}, any)->id, 2);
  EXPECT_EQ(queue.take(any, never, WaitPolicy::kNone)->id, 4);
}

TEST(DeviceQueue, KeepsAnExchangedTaskWhenTheBestIsNotWanted) {
  Queue queue;
  queue.push({{1, 0}, 1});
  EXPECT_FALSE(queue.exchange({{0, 5}, 2}, [](const Task& task) { return task.id == 2; }).has_value());
  EXPECT_EQ(queue.take(any, never, WaitPolicy::kNone)->id, 1);
  EXPECT_EQ(queue.take(any, never, WaitPolicy::kNone)->id, 2);
}

TEST(Spin, IsForBackwardsThatHaveAProcessorForEachThread) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const overdrive::engine::Participants too_many(CPU_COUNT(&allowed) + 1);
  EXPECT_FALSE(overdrive::engine::Spin().wait());
}

TEST(Spin, EndsByItself) {
  overdrive::engine::spin_until([] { return false; });
}

// Two threads hand one task back and forth; every kind of waiting takes part.
TEST(DeviceQueue, LosesNothingBetweenTwoThreads) {
  constexpr int kRounds = 1'000;
  Queue there, back;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      auto task = there.take(any, never, i % 3 == 0 ? WaitPolicy::kSleep : WaitPolicy::kLookAround);
      back.push(std::move(*task));
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    there.push({{0, static_cast<uint64_t>(i)}, i});
    EXPECT_EQ(back.take(any, never, i % 2 == 0 ? WaitPolicy::kSleep : WaitPolicy::kLookAround)->id, i);
  }
  other.join();
}

// The thread that ends a wait may be the last to touch anything but the queue, which it holds.
TEST(DeviceQueue, OutlivesTheOneThatWaits) {
  for (int round = 0; round < 500; ++round) {
    auto queue = std::make_shared<Queue>();
    std::atomic<int> left{2};
    std::vector<std::thread> others;
    for (int i = 0; i < 2; ++i) {
      others.emplace_back([queue, &left] {
        if (left.fetch_sub(1) == 1) queue->wake();
      });
    }
    EXPECT_FALSE(queue
                     ->take(
                         any, [&] { return left.load() == 0; }, WaitPolicy::kLookAround)
                     .has_value());
    queue.reset();
    for (auto& thread : others) thread.join();
  }
}

TEST(DeviceQueue, TakesFromManyPushers) {
  constexpr int kPushers = 3, kTasks = 2'000;
  Queue queue;
  std::vector<std::thread> pushers;
  for (int p = 0; p < kPushers; ++p) {
    pushers.emplace_back([&queue, p] {
      for (int i = 0; i < kTasks; ++i) queue.push({{p, static_cast<uint64_t>(i)}, 1});
    });
  }
  int taken = 0;
  while (taken < kPushers * kTasks) taken += queue.take(any, never, WaitPolicy::kLookAround)->id;
  for (auto& thread : pushers) thread.join();
  EXPECT_EQ(taken, kPushers * kTasks);
}

}  // namespace
