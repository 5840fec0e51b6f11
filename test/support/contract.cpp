#include "test/support/contract.h"

#include "test/support/process.h"
#include "test/support/thread_state.h"

#include <torch/cuda.h>

#include <chrono>
#include <thread>

namespace overdrive::test {

namespace {

// Stock starts a thread for each device with the first backward of a process, and the driver some of its own.
// They stay.
void start_the_hosts_threads() {
  static const bool once = [] {
    if (torch::cuda::is_available()) (torch::ones({1}, torch::requires_grad()) * 2).sum().backward();
    return true;
  }();
  (void)once;
}

}  // namespace

void ContractBase::SetUp() {
  at::set_num_threads(1);  // sums of large tensors depend on it, and so does the thread count
  ASSERT_FALSE(installed());
  start_the_hosts_threads();
  reset_stats();
#ifdef __SANITIZE_THREAD__
  std::thread([] {}).join();  // the sanitizer's own thread begins with the first of a process
#endif
  threads_before_ = thread_count();
  nodes_before_ = FunctionNode::live();
  state_before_ = thread_state();
}

namespace {

// A thread that was joined stays in /proc for a moment longer.
int settled_thread_count(int expected) {
  for (int i = 0; i < 5'000 && thread_count() > expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return thread_count();
}

}  // namespace

void ContractBase::TearDown() {
  EXPECT_TRUE(uninstall());
  EXPECT_EQ(&Engine::get_default_engine(), &Engine::get_base_engine());
  EXPECT_EQ(torch::autograd::get_current_graph_task_id(), -1);
  EXPECT_FALSE(torch::autograd::get_current_node()) << "a node is still current";
  EXPECT_EQ(FunctionNode::live(), nodes_before_) << "nodes are still alive";
  EXPECT_EQ(thread_state(), state_before_);
  for (size_t i = 0; i < watched_.size(); ++i) {
    EXPECT_TRUE(watched_[i].expired()) << "watched tensor " << i << " is still alive";
  }
  if (!forwarding_allowed_) {
    EXPECT_THAT(stats().forwarded, testing::IsEmpty()) << "the previous engine did our work";
  }
  if (!new_threads_allowed_) {
    // Fewer: a joined thread of the test before may have been listed still when this one began.
    EXPECT_LE(settled_thread_count(threads_before_), threads_before_) << "a thread is still alive";
  }
}

}  // namespace overdrive::test
