// What becomes of a training when the system refuses: threads, files that are gone or full, calls that signals
// interrupt. The bits are right, or an error names the reason, and afterwards all works again.
#include "bench/support/same_bits.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "hooks/hooks.h"
#include "inspect/cancel.h"
#include "test/stress/system/slow_disk.h"
#include "test/support/caught.h"
#include "test/support/child.h"
#include "test/support/gate.h"
#include "test/support/pch.h"
#include "test/support/refuse_threads.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

namespace overdrive::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Refusals : public testing::Test {
 protected:
  Refusals() : folder_(fs::temp_directory_path() / ("overdrive-refusals-" + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
    at::set_num_threads(1);
    install();
  }
  ~Refusals() override {
    refuse_threads = false;
    slow_disk = {};
    fs::remove_all(folder_);
  }

  HooksPtr spill(bool drop_cached = false, int64_t max_waiting_bytes = 0) const {
    return hooks::spill_to_disk({.folder = folder_,
                                 .min_bytes = 0,
                                 .max_waiting_bytes = max_waiting_bytes,
                                 .drop_cached = drop_cached});
  }
  // The loss of a chain of `length` operators under hooks.
  static at::Tensor forward(const at::Tensor& x, const HooksPtr& hooks, int length = 20) {
    const SavedTensorHooksGuard scope(hooks);
    at::Tensor y = x;
    for (int i = 0; i < length; ++i) y = y.sin();
    return y.sum();
  }
  // A step under hooks against the same step without.
  void expect_right_step(const HooksPtr& hooks, int length = 20) const {
    const at::Tensor x = leaf(), plain = leaf();
    forward(x, hooks, length).backward();
    forward(plain, nullptr, length).backward();
    EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
  }
  static at::Tensor leaf() { return at::linspace(-1, 1, 4096).requires_grad_(); }
  int open_file() const {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (fs::read_symlink(entry.path(), gone).string().starts_with(folder_.string()))
        return std::stoi(entry.path().filename());
    }
    return -1;
  }

  const fs::path folder_;
};

// Its bytes must not count as waiting: the next pack would wait for ever.
TEST_F(Refusals, OfTheThreadThatSpillsIsAnErrorAndNothingWaitsForIt) {
  const HooksPtr hooks = spill();
  const at::Tensor x = leaf();
  refuse_threads = true;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(message_of([&] { forward(x, hooks); }).message, HasSubstr("Resource temporarily unavailable"));
  }
  refuse_threads = false;
  expect_right_step(hooks);
}

TEST_F(Refusals, OfTheThreadThatFetchesLeavesTheNodesToFetch) {
  OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN();
  // The thread of the process may run already, for a test before; in a child there is none.
  EXPECT_TRUE(test::holds_in_a_child([] {
    const HooksPtr hooks = hooks::schedulable(hooks::quantise({.type = hooks::QuantisedType::kBFloat16}));
    const at::Tensor x = leaf(), other = leaf();
    refuse_threads = true;
    forward(x, hooks).backward();
    refuse_threads = false;
    forward(other, hooks).backward();
    return bench::same_bits(x.grad(), other.grad());
  }));
}

TEST_F(Refusals, OfTheThreadThatRunsAheadLeavesTheRegionToItsTurn) {
  OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN();
  EXPECT_TRUE(test::holds_in_a_child([] {
    const auto step = [] {
      const at::Tensor x = leaf();
      at::Tensor y = x * 1;
      for (int i = 0; i < 3; ++i) {
        y = checkpointed(
            {.form = CheckpointForm::kEarly, .ahead = 1}, [](const at::Tensor& t) { return t.sin().cos(); }, y);
      }
      y.sum().backward();
      return x.grad();
    };
    refuse_threads = true;
    const at::Tensor without = step();
    refuse_threads = false;
    return bench::same_bits(without, step());
  }));
}

TEST_F(Refusals, AFolderThatIsRemovedBetweenForwardAndBackwardLosesNothing) {
  const at::Tensor x = leaf(), plain = leaf();
  const at::Tensor loss = forward(x, spill());
  fs::remove_all(folder_);
  loss.backward();
  forward(plain, nullptr).backward();
  EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
}

TEST_F(Refusals, AFileThatTheProgramClosesIsAnErrorWithTheFolder) {
  const at::Tensor x = leaf();
  const HooksPtr hooks = spill();
  const at::Tensor loss = forward(x, hooks);
  const int file = open_file();
  ASSERT_GE(file, 0);
  // Not close(): another file would get the number.
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nothing, file);
  ::close(nothing);
  EXPECT_THAT(message_of([&] { loss.backward(); }).message,
              testing::AllOf(HasSubstr("spill_to_disk cannot read"), HasSubstr(folder_.string())));
  EXPECT_FALSE(x.grad().defined());
  expect_right_step(spill());
}

TEST_F(Refusals, ADiskThatIsFullInTheMiddleOfAForwardIsAnErrorOfTheForward) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const HooksPtr hooks = spill();
  const at::Tensor x = leaf();
  const at::Tensor earlier = forward(x, hooks, 3);
  const struct rlimit small {
    .rlim_cur = 10 * 4096 * sizeof(float), .rlim_max = before.rlim_max
  };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = message_of([&] { forward(x, hooks, 30); }).message;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(error, testing::AllOf(HasSubstr("spill_to_disk cannot write"), HasSubstr("File too large")));
  earlier.backward();
  const at::Tensor plain = leaf();
  forward(plain, nullptr, 3).backward();
  EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
  expect_right_step(hooks);
}

// A function of the disk that stops in one of its calls, until the test has met it at both gates.
struct Hold {
  explicit Hold(int held_call) : held(held_call) {}
  void operator()() {
    if (++calls != held) return;
    begun.arrive_and_wait();
    goes_on.arrive_and_wait();
  }

  const int held;
  std::atomic<int> calls{0};
  Gate begun{2}, goes_on{2};
};

// Tensors that wait for the disk are in memory, and the backward takes them from there.
TEST_F(Refusals, ADiskThatTakesNothingHoldsUpNoBackward) {
  Hold writing(1);
  slow_disk.before_write = std::ref(writing);
  const HooksPtr hooks = spill(/*drop_cached=*/false, /*max_waiting_bytes=*/int64_t{1} << 30);
  const at::Tensor x = leaf(), plain = leaf();
  const at::Tensor loss = forward(x, hooks);
  writing.begun.arrive_and_wait();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(writing.calls, 1);
  forward(plain, nullptr).backward();
  EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
  writing.goes_on.arrive_and_wait();
  x.mutable_grad().reset();
  loss.backward();
  EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
}

// Where little may wait in memory, an operator waits for the disk.
TEST_F(Refusals, ADiskThatIsSlowHoldsUpTheForward) {
  Hold writing(1);
  slow_disk.before_write = std::ref(writing);
  const HooksPtr hooks = spill();
  const at::Tensor x = leaf(), plain = leaf();
  std::atomic<bool> is_built{false};
  at::Tensor loss;
  std::thread builder([&] {
    loss = forward(x, hooks);
    is_built = true;
  });
  writing.begun.arrive_and_wait();
  EXPECT_FALSE(is_built);
  writing.goes_on.arrive_and_wait();
  builder.join();
  EXPECT_GE(writing.calls, 18);  // of 19 tensors; the last one may wait
  loss.backward();
  forward(plain, nullptr).backward();
  EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
}

// A read cannot be broken off; the backward stops after the node that waited for it.
TEST_F(Refusals, ABackwardOnASlowDiskCanBeCancelled) {
  const at::Tensor x = leaf(), plain = leaf();
  const at::Tensor loss = forward(x, spill());
  CancelToken token;
  Hold reading(3);
  slow_disk.before_read = std::ref(reading);
  std::thread user([&] {
    reading.begun.arrive_and_wait();
    token.cancel();
    reading.goes_on.arrive_and_wait();
  });
  {
    const StopScope scope(token);
    EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), Cancelled);
  }
  user.join();
  EXPECT_EQ(reading.calls, 3);
  EXPECT_FALSE(x.grad().defined());
  loss.backward();
  forward(plain, nullptr).backward();
  EXPECT_TRUE(bench::same_bits(x.grad(), plain.grad()));
}

// The system ends calls with EINTR after a handler that was set without SA_RESTART.
TEST_F(Refusals, SignalsInTheMiddleOfSpillingChangeNothing) {
  static std::atomic<int> signals{0};
  for (const int flags : {0, SA_RESTART}) {
    signals = 0;
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) { ++signals; };
    action.sa_flags = flags;
    ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
    const itimerval often{{0, 200}, {0, 200}}, never{};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    for (int i = 0; i < 3 || signals < 20; ++i) expect_right_step(spill(/*drop_cached=*/true));
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before, nullptr);
    EXPECT_GE(signals, 20);
  }
}

}  // namespace
}  // namespace overdrive::test
