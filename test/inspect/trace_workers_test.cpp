// Traces and hooks of backwards with workers: each node on the thread of its device.
#include "inspect/inspect.h"

#include "test/engine/devices/workers.h"
#include "test/inspect/trace_reader.h"

#include <mutex>
#include <thread>

namespace {

using namespace overdrive;
using test::backward_over;
using test::Workers;

using InspectedWorkers = Workers;

TEST_F(InspectedWorkers, HaveTheirNodesInTheTrace) {
  test::TraceOnDisk file("workers");
  {
    Trace trace(file.path);
    for (int i = 0; i < 20; ++i) backward_over({1, 2});
  }
  EXPECT_EQ(test::broken_rule(file), "");
  std::map<std::string, std::set<int64_t>> threads;
  for (const auto& node : file.nodes())
    threads[node["args"].value("dev", "cpu")].insert(node["tid"].get<int64_t>());
  EXPECT_EQ(threads["fake:1"].size(), 1u);
  EXPECT_EQ(threads["fake:2"].size(), 1u);
  EXPECT_NE(threads["fake:1"], threads["fake:2"]);
  std::set<std::string> named;
  const nlohmann::json whole = file.whole();
  for (const auto& event : whole["traceEvents"]) {
    if (event["name"] == "thread_name") named.insert(event["args"]["name"]);
  }
  EXPECT_TRUE(named.contains("od-fake:1") && named.contains("od-fake:2"));
}

TEST_F(InspectedWorkers, ShowTheWaitsOfStreams) {
  test::TraceOnDisk file("streams");
  const at::Tensor x = test::device_leaf(1);
  at::Tensor y;
  {
    test::fake::wait_for(test::fake::stream(1, 2), test::fake::stream(1, 0));
    const c10::StreamGuard guard(test::fake::stream(1, 2));
    y = (x * 3).sum();
  }
  test::fake::wait_for(test::fake::stream(1, 0), test::fake::stream(1, 2));
  {
    Trace trace(file.path);
    y.backward();
  }
  EXPECT_EQ(test::broken_rule(file), "");
  bool caller_waits = false;
  for (const auto& wait : file.slices({"stream wait"})) {
    EXPECT_EQ(wait["args"]["dev"], "fake:1");
    EXPECT_NE(wait["args"]["stream"], wait["args"]["for"]);
    caller_waits |= wait["args"]["stream"] == 0 && wait["args"]["for"] == 2;
  }
  EXPECT_TRUE(caller_waits) << "the caller's stream waits for that of the leaf";
}

// {x on 1} --> {y on 1} --> {2} --> loss: the worker of device 1 is stopped in front of the leaf.
TEST_F(InspectedWorkers, StopWhenOneOfThemIsCancelled) {
  CancelToken token;
  const at::Tensor x = test::device_leaf(1);
  const at::Tensor y = x * 2;
  y.register_hook([&token](const at::Tensor&) { token.cancel(); });
  const at::Tensor loss = (y.to(test::fake::device(2)) * 1).sum();
  {
    const StopScope scope(token);
    try {
      loss.backward();
      FAIL() << "the backward ran to its end";
    } catch (const Cancelled& stopped) {
      EXPECT_EQ(stopped.total(), 5u);
      EXPECT_EQ(stopped.done(), 4u);
      EXPECT_TRUE(stopped.accumulated().empty());
    }
  }
  EXPECT_FALSE(x.grad().defined());
  backward_over({1, 2});
}

TEST_F(InspectedWorkers, StopFromAnotherThreadAtAnyMoment) {
  for (int round = 0; round < 30; ++round) {
    CancelToken token;
    std::thread other([token]() mutable { token.cancel(); });
    const StopScope scope(token);
    const at::Tensor x = test::device_leaf(1);
    at::Tensor y = x * 2;
    for (int i = 0; i < 10; ++i) y = y.to(test::fake::device(1 + i % 2)) * 1;
    try {
      y.sum().backward();
      EXPECT_TRUE(x.grad().defined());
    } catch (const Cancelled& stopped) {
      EXPECT_LT(stopped.done(), stopped.total());
      EXPECT_EQ(x.grad().defined(), !stopped.accumulated().empty());
    }
    other.join();
  }
  backward_over({1, 2});
}

TEST_F(InspectedWorkers, CallTheHooksOfTheProgram) {
  std::mutex mutex;
  int before = 0, after = 0, ended = 0;
  {
    const auto scope = on_backward({.end = [&](const auto&, const auto&) { ++ended; },
                                    .before_node =
                                        [&](const auto&, const auto&) {
                                          const std::lock_guard lock(mutex);
                                          ++before;
                                        },
                                    .after_node =
                                        [&](const auto&, const auto&) {
                                          const std::lock_guard lock(mutex);
                                          ++after;
                                        }});
    backward_over({1, 2});
  }
  EXPECT_GT(before, 4);
  EXPECT_EQ(before, after);
  EXPECT_EQ(ended, 1);
}

}  // namespace
