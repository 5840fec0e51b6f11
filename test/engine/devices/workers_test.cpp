// The workers of devices: when they start, what they are called, what they use, when they end. Ours only; the
// contract is in the files beside this one.
#include "test/engine/devices/workers.h"

#include <ATen/Context.h>
#include <c10/core/StreamGuard.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {

using namespace overdrive;
using engine::Threads;
using test::backward_over;
using test::device_leaf;
using test::threads_named;
using test::Workers;
using torch::Tensor;
namespace fake = test::fake;

TEST_F(Workers, StartWhenSeveralDevicesTakePartAndNoSooner) {
  backward_over({1});
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty());
  backward_over({1, 2});
  EXPECT_EQ(threads_named("od-"), (std::vector<std::string>{"od-fake:1", "od-fake:2"}));
  backward_over({2, 3});
  EXPECT_EQ(threads_named("od-"), (std::vector<std::string>{"od-fake:1", "od-fake:2", "od-fake:3"}));
  EXPECT_EQ(stats().threads, 3u);
}

TEST_F(Workers, EndWithUninstall) {
  backward_over({0, 1});
  EXPECT_TRUE(uninstall());
  EXPECT_THAT(test::workers_left(), testing::IsEmpty());
  use(Threads::kAuto);
  backward_over({0, 1});
  EXPECT_EQ(threads_named("od-").size(), 2u);
}

TEST_F(Workers, MayComeAndGoWhileOtherThreadsRunBackwards) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "between uninstall() and install() stock runs a backward, whose threads meet inside LibTorch";
#endif
  std::atomic<bool> stop{false};
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (const int device : {1, 2}) {
    threads.emplace_back([&, device] {
      for (; !stop; ++ran) backward_over({device, 3});
    });
  }
  for (int i = 0; i < 300 || ran < 40; ++i) {
    uninstall();
    use(Threads::kAuto);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  uninstall();
  EXPECT_THAT(test::workers_left(), testing::IsEmpty());
}

TEST_F(Workers, FinishABackwardThatUninstallsAndThenEnd) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  y.register_hook([](const Tensor&) { EXPECT_TRUE(uninstall()); });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
  EXPECT_THAT(test::workers_left(), testing::IsEmpty());
}

TEST_F(Workers, LeaveAGraphOfOneDeviceToTheCaller) {
  const auto here = std::this_thread::get_id();
  const Tensor x = device_leaf(4);
  const Tensor on_cpu = torch::ones({2}, torch::requires_grad());  // a leaf elsewhere changes nothing
  const Tensor y = (x * 2 + on_cpu.to(fake::device(4))).exp();
  int elsewhere = 0;
  for (const Tensor& tensor : {x, y, on_cpu}) {
    tensor.register_hook([&](const Tensor&) { elsewhere += std::this_thread::get_id() != here; });
  }
  y.sum().backward();
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(stats().threads, 0u);
}

TEST_F(Workers, AddNoThreadSwitchToAGraphOfOneDevice) {
  const auto switches = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  backward_over({1});
  const long before = switches();
  for (int i = 0; i < 50; ++i) backward_over({1});
  EXPECT_EQ(switches(), before);
}

// Of 200 ms. A worker that waits awake would use all of them.
constexpr auto kLong = std::chrono::milliseconds(200);
constexpr double kNothing = 0.02;

TEST_F(Workers, UseNoProcessorBetweenBackwards) {
  backward_over({0, 1, 2, 3});
  ASSERT_EQ(threads_named("od-").size(), 4u);
  const double before = test::cpu_seconds_of_threads_named("od-");
  EXPECT_GT(before, 0);
  std::this_thread::sleep_for(kLong);
  EXPECT_LT(test::cpu_seconds_of_threads_named("od-") - before, kNothing);
}

// {x on 0} --> 1 --> 0 --> 1 --> loss, where the last node of 0 takes long and 1 has been there twice.
TEST_F(Workers, UseNoProcessorWhileTheyWaitInsideABackward) {
  double used = -1;
  const Tensor x = device_leaf(0);
  x.register_hook([&](const Tensor&) {
    const double before = test::cpu_seconds_of_threads_named("");  // the caller waits, too
    std::this_thread::sleep_for(kLong);
    used = test::cpu_seconds_of_threads_named("") - before;
  });
  Tensor y = x;
  for (const int device : {1, 0, 1}) y = (y * 1).to(fake::device(device));
  y.sum().backward();
  EXPECT_GE(used, 0);
  EXPECT_LT(used, kNothing);
}

TEST_F(Workers, RunOneDeviceTooWhenAskedTo) {
  use(Threads::kDevice);
  backward_over({3});
  EXPECT_EQ(threads_named("od-"), (std::vector<std::string>{"od-fake:3"}));
}

TEST_F(Workers, AreNeverStartedWithThreadsCaller) {
  use(Threads::kCaller);
  backward_over({0, 1, 2});
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty());
  EXPECT_EQ(stats().threads, 0u);
}

// {root on the CPU} --> {on 5} --> {on 6} --> {on 5}: nodes that touch nothing themselves.
TEST_F(Workers, SetTheirOwnDeviceAndNoOther) {
  using Set = std::pair<std::string, int>;
  std::set<Set> seen;
  std::mutex mutex;
  const auto note = [&](int device) {
    const std::lock_guard lock(mutex);
    seen.insert({test::name_of_this_thread(), device});
  };
  test::NodePtr first;
  for (const int device : {5, 6, 5}) {
    const auto edges = first != nullptr ? test::edge_list{test::edge(first)} : test::edge_list{};
    const auto body = [note, count = edges.size()](test::variable_list&&) {
      note(fake::current_device());
      return test::variable_list(count);
    };
    first = test::make_node("node", edges, body, torch::empty({2}, fake::options(device)));
  }
  const auto root = test::make_node("root", {test::edge(first)},
                                    [](test::variable_list&&) { return test::variable_list(1); });
  fake::on_set_device(note);
  test::run({.roots = {test::edge(root)}});
  fake::on_set_device(nullptr);
  EXPECT_EQ(seen, (std::set<Set>{{"od-fake:5", 5}, {"od-fake:6", 6}}));
}

TEST_F(Workers, OfAShadowCheckDrawTheSameNumbersTwice) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the second run is stock's, whose threads meet inside LibTorch";
#endif
  Options options = Options::from_environment();
  options.check_every = 1;
  install(options);
  fake::use_own_generators(true);
  at::Generator generator = at::globalContext().defaultGenerator(fake::device(1));
  const Tensor x = device_leaf(1);
  const auto noisy = test::make_node(
      "noisy", {test::accumulator(x)},
      [&](test::variable_list&& gradients) {
        return test::variable_list{gradients[0] * at::rand({}, generator, at::kFloat)};
      },
      torch::empty({2}, fake::options(1)));
  generator.set_current_seed(5);
  const Tensor once = at::rand({}, generator, at::kFloat), after = at::rand({}, generator, at::kFloat);
  generator.set_current_seed(5);
  test::output_of(noisy).backward(torch::ones({2}).to(fake::device(1)));
  EXPECT_EQ(stats().checked, 1u);
  EXPECT_TRUE(torch::equal(x.grad().cpu(), once.expand({2})));
  EXPECT_TRUE(torch::equal(at::rand({}, generator, at::kFloat), after)) << "it is as after one run";
  fake::use_own_generators(false);
}

// {x, whose accumulator was made on the default stream} --*2 on stream 1--> loss
TEST_F(Workers, LeaveTheHostsWarningOfAnAccumulatorOnAnotherStreamInPlaceAndNameTheLeaf) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    const Tensor x = device_leaf(1);
    const auto accumulator = torch::autograd::impl::gradient_edge(x);
    fake::wait_for(fake::stream(1, 1), fake::stream(1, 0));
    const c10::StreamGuard on_side(fake::stream(1, 1));
    (x * 2).sum().backward();
    fake::wait_for(fake::stream(1, 0), fake::stream(1, 1));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string begin = "The AccumulateGrad node's stream does not match";
  const size_t first = said.find(begin);
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(begin, first + 1), std::string::npos) << said;
  const std::string ours = "the leaf of that warning is ";
  const size_t named = said.find(ours);
  ASSERT_NE(named, std::string::npos) << said;
  EXPECT_GT(named, first) << said;
  EXPECT_EQ(said.find(ours, named + 1), std::string::npos) << said;
  EXPECT_NE(said.find("made on stream 0, and its gradient comes on stream 1"), std::string::npos) << said;
}

}  // namespace
