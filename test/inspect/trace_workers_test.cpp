// Traces and hooks of backwards with workers: each node on the thread of its device.
#include "inspect/inspect.h"

#include "test/engine/devices/workers.h"
#include "test/inspect/trace_reader.h"

#include <mutex>

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
