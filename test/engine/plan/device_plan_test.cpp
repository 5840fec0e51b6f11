// Which thread runs which node, for graphs on the CPU and on the meta device: no accelerator is needed, and no
// thread starts.
#include "engine/devices/device_plan.h"
#include "test/support/graph.h"

namespace overdrive::engine {
namespace {

using test::edge;
using test::make_node;

DevicePlan plan_of(const base::NodePtr& root, Threads threads, Plan& plan) {
  plan.build({root.get(), false, {}, true});
  return DevicePlan(plan, threads, std::nullopt);
}

class DevicePlanOfCpuNodes : public testing::TestWithParam<Threads> {};

TEST_P(DevicePlanOfCpuNodes, KeepsAllOnTheCallingThread) {
  Plan plan;
  const DevicePlan devices = plan_of(make_node("root", {edge(make_node("a", {}))}), GetParam(), plan);
  EXPECT_FALSE(devices.hands_over());
  EXPECT_TRUE(devices.devices().empty());
  EXPECT_EQ(devices.queue_of(0), kMainQueue);
  EXPECT_EQ(devices.queue_of(1), kMainQueue);
}

INSTANTIATE_TEST_SUITE_P(AllThreads, DevicePlanOfCpuNodes,
                         testing::Values(Threads::kAuto, Threads::kCaller, Threads::kDevice));

TEST(DevicePlan, CountsTheMetaDeviceAsTheCallers) {
  Plan plan;
  const at::Tensor meta = at::empty({1}, at::device(at::kMeta));
  const DevicePlan devices = plan_of(make_node("root", {}, nullptr, meta), Threads::kDevice, plan);
  EXPECT_FALSE(devices.hands_over());
  EXPECT_EQ(devices.type(), at::kCPU);
}

}  // namespace
}  // namespace overdrive::engine
