// The workers of devices: when they start, what they are called, when they end, and what happens when there
// can be none. Ours only; the contract is in the files beside this one.
#include "test/support/caught.h"
#include "test/support/fake/device_contract.h"

#include <c10/core/StreamGuard.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>

namespace {
std::atomic<bool> refuse_threads{false};
}

// Stands before the C library's: a system that has no more threads to give.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  static auto* const real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return refuse_threads.load() ? EAGAIN : real(thread, attributes, body, argument);
}

namespace {

using namespace overdrive;
using engine::Threads;
using test::device_leaf;
using test::threads_named;
using torch::Tensor;
namespace fake = test::fake;

class Workers : public test::DeviceContractBase {
 protected:
  void use(Threads threads) {
    Options options = Options::from_environment();
    options.threads = threads;
    install(options);
  }
  void SetUp() override {
    DeviceContractBase::SetUp();
    use(Threads::kAuto);
  }
};

// {x on the first} --> each device --> loss
Tensor backward_over(const std::vector<int>& devices) {
  const Tensor x = device_leaf(devices.front());
  Tensor y = x * 2;
  for (const int device : devices) y = y.to(fake::device(device)) * 1;
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
  return x;
}

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
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty());
  use(Threads::kAuto);
  backward_over({0, 1});
  EXPECT_EQ(threads_named("od-").size(), 2u);
}

TEST_F(Workers, FinishABackwardThatUninstallsAndThenEnd) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  y.register_hook([](const Tensor&) { EXPECT_TRUE(uninstall()); });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty());
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

TEST_F(Workers, SetTheirOwnDeviceAndNoOther) {
  std::map<std::string, std::set<int>> devices;
  std::mutex mutex;
  const Tensor x = device_leaf(5);
  const Tensor y = (x * 2).to(fake::device(6));
  const Tensor c = y.cpu();
  for (const Tensor& tensor : {x, y}) {
    tensor.register_hook([&](const Tensor&) {
      std::lock_guard lock(mutex);
      devices[test::name_of_this_thread()].insert(fake::current_device());
    });
  }
  c.sum().backward();
  EXPECT_EQ(devices["od-fake:5"], (std::set<int>{5}));
  EXPECT_EQ(devices["od-fake:6"], (std::set<int>{6}));
}

TEST_F(Workers, AreReplacedByTheCallerWhenTheSystemRefusesThreads) {
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

// {root} --> {far away, on `device`}
test::NodePtr graph_that_leads_to(at::Device device) {
  const test::NodePtr node = test::make_node("far away", {});
  const std::vector<c10::SymInt> shape{2};
  node->add_input_metadata(at::TensorOptions().device(device).dtype(at::kFloat), shape,
                           /*is_tensor_subclass=*/false, /*is_nested=*/false, at::kFloat);
  return test::make_node("root", {test::edge(node, 1)},
                         [](test::variable_list&&) { return test::variable_list(1); });
}

TEST_F(Workers, CannotServeADeviceThatDoesNotExist) {
  const test::NodePtr root = graph_that_leads_to({fake::kType, 12});
  EXPECT_EQ(test::message_of([&] { test::run({.roots = {test::edge(root)}}); }).message,
            "node far away is on fake:12, but this process sees 8 fake devices.");
}

TEST_F(Workers, CannotServeATypeOfDeviceThatNothingProvides) {
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

// {x, whose accumulator was made on the default stream} --*2 on stream 1--> loss
TEST_F(Workers, LeaveTheHostsWarningOfAnAccumulatorOnAnotherStreamInPlace) {
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
}

// On stock's threads such an error ends the process.
TEST_F(Workers, CarryAnErrorThatIsNoStdException) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  x.register_hook([](const Tensor&) -> Tensor { throw 7; });
  EXPECT_EQ(test::message_of([&] { y.sum().backward(); }), (test::Caught{"int", ""}));
  backward_over({0, 1});
}

TEST_F(Workers, AreMissedByAForkedChildThatIsToldSo) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a child that starts a thread when its parent had several";
#endif
  backward_over({0, 1});
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    // What the host refuses in a child of a process that used devices is refused, in its words, and nothing
    // waits for a thread that is not there.
    const test::Caught caught = test::message_of([] { backward_over({0, 1}); });
    const bool refused = caught.message.find("fork") != std::string::npos;
    uninstall();
    _exit(refused && threads_named("od-").empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  backward_over({0, 1});
}

}  // namespace
