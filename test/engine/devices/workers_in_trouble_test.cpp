// What becomes of a backward when there can be no worker, or when one fails: threads that the system refuses,
// devices that do not exist, drivers that do not answer. Ours only.
#include "test/engine/devices/workers.h"
#include "test/support/caught.h"
#include "test/support/refuse_threads.h"
#include "test/support/sanitized.h"

#include <pthread.h>

#include <thread>

namespace {

using namespace overdrive;
using test::backward_over;
using test::device_leaf;
using test::refuse_threads;
using test::threads_named;
using torch::Tensor;
namespace fake = test::fake;

class WorkersInTrouble : public test::Workers {};

TEST_F(WorkersInTrouble, AreReplacedByTheCallerWhenTheSystemRefusesThreads) {
  testing::internal::CaptureStderr();
  backward_over({1});  // the host's own threads first
  refuse_threads = true;
  backward_over({1, 2});
  backward_over({1, 2, 3});
  refuse_threads = false;
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("Overdrive could not start a thread for fake:"));
  EXPECT_EQ(said.find("could not start", said.find("could not start") + 1), std::string::npos) << said;
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty());
  backward_over({1, 2});
  EXPECT_EQ(threads_named("od-").size(), 2u);
}

// The caller runs the nodes of the device without a worker. The other device keeps its worker.
//   {x on 1} --to 2--> {y} --to 1--> {z} --> loss
TEST_F(WorkersInTrouble, OfOneDeviceLeaveTheOthersTheirWorkers) {
  const Tensor x = device_leaf(1);
  const Tensor y = x.to(fake::device(2)) * 2, z = y.to(fake::device(1)) * 3;
  std::string thread_of_y, thread_of_z;
  y.register_hook([&](const Tensor&) { thread_of_y = test::name_of_this_thread(); });
  z.register_hook([&](const Tensor&) { thread_of_z = test::name_of_this_thread(); });
  const Tensor loss = z.sum();
  testing::internal::CaptureStderr();
  // The loss comes first in the plan, and so does the worker of its device.
  test::threads_to_refuse = 1;
  loss.backward();
  EXPECT_EQ(test::threads_to_refuse.exchange(0), 0);
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(thread_of_y, testing::StartsWith("od-"));
  EXPECT_THAT(thread_of_y, testing::EndsWith(":2"));
  EXPECT_EQ(thread_of_z, test::name_of_this_thread());
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 6.0)));
}

TEST_F(WorkersInTrouble, AThreadMayEndInsideANodeOfAGraphOfOneDevice) {
  bool survived = false;
  std::thread([&] {
    const Tensor x = device_leaf(1);
    Tensor y = x * 2;
    y.register_hook([](const Tensor&) { test::end_thread(); });
    y.sum().backward();
    survived = true;
  }).join();
  EXPECT_FALSE(survived);
  backward_over({1});
  backward_over({1, 2});
}

// {root} --> {far away, on `device`}
test::NodePtr graph_that_leads_to(at::Device device) {
  const test::NodePtr node = test::make_node("far away", {});
  const std::vector<c10::SymInt> shape{2};
  node->add_input_metadata(at::TensorOptions().device(device).dtype(at::kFloat), shape,
                           /*is_tensor_subclass=*/false, /*is_nested=*/false, at::kFloat);
  return test::make_node("root", {test::edge(node, 1)},
                         [](test::variable_list&&) { return test::variable_list(1); });
}

TEST_F(WorkersInTrouble, CannotServeADeviceThatDoesNotExist) {
  const test::NodePtr root = graph_that_leads_to({fake::kType, 12});
  EXPECT_EQ(test::message_of([&] { test::run({.roots = {test::edge(root)}}); }).message,
            "node far away is on fake:12, but this process sees 8 fake devices.");
}

TEST_F(WorkersInTrouble, CannotServeATypeOfDeviceThatNothingProvides) {
  // Making the node asks for the guard already; so it is there for just as long.
  auto& guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(at::kHPU)];
  ASSERT_EQ(guard.load(), nullptr);
  guard = c10::impl::getDeviceGuardImpl(fake::kType);
  const test::NodePtr root = graph_that_leads_to({at::kHPU, 0});
  guard = nullptr;
  EXPECT_EQ(test::message_of([&] { test::run({.roots = {test::edge(root)}}); }).message,
            "node far away is on hpu:0, but nothing in this process provides hpu devices (no device guard is "
            "registered). Is its library loaded?");
}

struct DriverIs {
  explicit DriverIs(fake::Driver driver) { fake::set_driver(driver); }
  ~DriverIs() { fake::set_driver(fake::Driver::kFine); }
};

TEST_F(WorkersInTrouble, AreNotStartedForADriverThatCannotBeReached) {
  const Tensor x = device_leaf(0);
  const Tensor loss = (x * 2).to(fake::device(1)).sum();
  {
    const DriverIs unreachable(fake::Driver::kUnreachable);
    EXPECT_EQ(test::message_of([&] { loss.backward({}, /*retain_graph=*/true); }).message,
              "node SumBackward0 is on fake:1, but this process sees 0 fake devices.");
  }
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty());
  loss.backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
}

// Before the run, and on a worker in the middle of it.
TEST_F(WorkersInTrouble, PassOnTheErrorOfADriverThatFailed) {
  for (const bool in_the_middle : {false, true}) {
    const Tensor x = device_leaf(0);
    const Tensor y = (x * 2).to(fake::device(1));
    if (in_the_middle) x.register_hook([](const Tensor&) { fake::set_driver(fake::Driver::kFailed); });
    const Tensor loss = y.sum();
    const DriverIs failed(in_the_middle ? fake::Driver::kFine : fake::Driver::kFailed);
    EXPECT_THAT(test::message_of([&] { loss.backward(); }).message,
                testing::StartsWith("the fake driver has failed"));
    EXPECT_FALSE(x.grad().defined() && !in_the_middle);
  }
  backward_over({0, 1});
}

// On stock's threads such an error ends the process.
TEST_F(WorkersInTrouble, CarryAnErrorThatIsNoStdException) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  x.register_hook([](const Tensor&) -> Tensor { throw 7; });
  EXPECT_EQ(test::message_of([&] { y.sum().backward(); }), (test::Caught{"int", ""}));
  backward_over({0, 1});
}

}  // namespace
