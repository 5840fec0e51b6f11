// OVERDRIVE_CAPTURE_CHECK and CaptureOptions::check_every: every n-th replay is taken back, made eagerly, and
// compared. What a recording cannot see is noticed then.
#include "test/replay/replay_fixture.h"
#include "test/support/error_of.h"

#include <cstdlib>

namespace overdrive::test {
namespace {

using testing::HasSubstr;

Training noisy_training() {
  using namespace torch::nn;
  return train_sequential(Sequential(Linear(8, 16), BatchNorm1d(16), Dropout(0.3), Tanh(), Linear(16, 4)),
                          adam(), {5, 8}, {5, 4});
}

// Parameters, moments, running statistics, step counts and random numbers go on as if nothing was compared.
TEST(CaptureComparedReplays, LeaveWhatEagerLeaves) {
  for (const uint64_t every : {1, 2, 3}) {
    SideBySide both(noisy_training, {.check_every = every});
    EXPECT_EQ(both.run(40), "") << both.step().explain();
    EXPECT_EQ(both.step().refusal(), "");
    const CaptureStats stats = both.step().stats();
    EXPECT_EQ(stats.checked, 1 + 36 / every) << both.step().explain();
    EXPECT_EQ(stats.replayed, 36 - 36 / every) << both.step().explain();
  }
}

TEST(CaptureComparedReplays, ChangeInputsAsEagerDoes) {
  auto step = capture(
      [](at::Tensor x) {
        x.mul_(2);
        return x.sum();
      },
      {.check_every = 2});
  for (int i = 0; i < 12; ++i) {
    at::Tensor x = torch::full({2, 3}, i, torch::kFloat), expected = x * 2;
    const auto version = x._version();
    EXPECT_TRUE(same_bits(step(x), expected.sum()));
    EXPECT_TRUE(same_bits(x, expected));
    EXPECT_EQ(x._version(), version + 1) << i;
  }
}

// Calls the step until replays begin, makes the change, and calls on until it is noticed. The call that notices
// leaves what eager leaves and says what differs; the step is not replayed any more.
std::string noticed(const std::function<at::Tensor(at::Tensor)>& function,
                    const std::function<void()>& change) {
  auto step = capture(function, {.check_every = 4});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(same_bits(step(torch::ones({3})), function(torch::ones({3}))));
  EXPECT_EQ(step.stats().replayed, 2u) << step.explain();
  change();
  std::string error;
  for (int i = 0; i < 4 && error.empty(); ++i) {
    try {
      step(torch::ones({3}));
    } catch (const c10::Error& thrown) {
      error = thrown.what_without_backtrace();
    }
  }
  EXPECT_EQ(step.refusal(), error);
  EXPECT_EQ(step.stats().replayed, 3u);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(same_bits(step(torch::ones({3})), function(torch::ones({3}))));
  EXPECT_EQ(step.stats().replayed, 3u);
  return error;
}

TEST(CaptureComparedReplays, NoticeANumberThatWasNotWatched) {
  double factor = 0.5;
  EXPECT_THAT(noticed([&](at::Tensor x) { return x * factor; }, [&] { factor = 0.25; }),
              AllOf(HasSubstr("OVERDRIVE_CAPTURE_CHECK"), HasSubstr("varies")));
}

TEST(CaptureComparedReplays, NoticeAConditionThatGoesTheOtherWay) {
  bool other = false;
  EXPECT_THAT(noticed([&](at::Tensor x) { return other ? x.sin() : x.cos(); }, [&] { other = true; }),
              HasSubstr("must do the same"));
}

// A value that the program writes by hand into memory that an operator has filled.
TEST(CaptureComparedReplays, NoticeAValueThatIsWrittenByHand) {
  at::Tensor table = torch::zeros({3});
  float written = 0;
  EXPECT_THAT(noticed(
                  [&](at::Tensor x) {
                    table.fill_(1);
                    table.data_ptr<float>()[0] += written;
                    return x * table;
                  },
                  [&] { written = 1; }),
              HasSubstr("a replay"));
}

// CTest sets the variable for this file.
TEST(CaptureComparedReplaysByVariable, AreThoseThatItSays) {
  const char* every = std::getenv("OVERDRIVE_CAPTURE_CHECK");
  if (!every || !*every || *every == '0') GTEST_SKIP() << "OVERDRIVE_CAPTURE_CHECK is not set";
  SideBySide both(noisy_training);
  EXPECT_EQ(both.run(20), "") << both.step().explain();
  EXPECT_EQ(both.step().stats().checked, 1 + 16 / std::stoul(every)) << both.step().explain();
}

// Also where no engine is installed that would have looked at the variable.
TEST(CaptureComparedReplaysByVariable, ABadValueIsAnErrorThatNamesIt) {
  const char* set = std::getenv("OVERDRIVE_CAPTURE_CHECK");
  const std::string before = set ? set : "";
  for (const char* bad : {"often", "-1", "4x", "99999999999"}) {
    setenv("OVERDRIVE_CAPTURE_CHECK", bad, 1);
    auto step = capture([](const at::Tensor& x) { return x * 2; });
    EXPECT_THAT(error_of([&] { step(at::ones({2})); }),
                HasSubstr(c10::str("OVERDRIVE_CAPTURE_CHECK is \"", bad, "\", but must be")));
  }
  setenv("OVERDRIVE_CAPTURE_CHECK", before.c_str(), 1);
}

}  // namespace
}  // namespace overdrive::test
