// Whether replays are worth it, by times that the tests make up; and two captured functions whose replays take
// a thousand times as long as their calls.
#include "replay/run/profitability.h"

#include "replay/captured.h"
#include "test/replay/replay_fixture.h"

#include <random>

namespace overdrive::test {
namespace {

using replay::Profitability;
using testing::HasSubstr;

// Calls as profitability asks for them, until it knows; how many were eager. Each way takes what its function
// says.
int settle(Profitability& profitability, const std::function<double()>& replay,
           const std::function<double()>& eager) {
  int eager_calls = 0;
  for (int i = 0; i < 1000 && profitability.is_open(); ++i) {
    const Profitability::Way way = profitability.next();
    eager_calls += way == Profitability::Way::kEager ? 1 : 0;
    profitability.note(way, way == Profitability::Way::kEager ? eager() : replay());
  }
  return eager_calls;
}

std::function<double()> always(double nanoseconds) {
  return [=] { return nanoseconds; };
}

// Calls that take up to half as long again, and now and then ten times as long.
std::function<double()> noisy(double nanoseconds, int seed) {
  return [nanoseconds, random = std::mt19937(seed)]() mutable {
    const double noise = static_cast<double>(random() % 1000) / 1000;
    return nanoseconds * (random() % 10 == 0 ? 10 : 1 + 0.5 * noise * noise);
  };
}

constexpr int kBlock = Profitability::kSettle + Profitability::kMeasured;

TEST(Profitability, OneRoundIsEnoughForFastReplays) {
  Profitability profitability(false);
  EXPECT_EQ(settle(profitability, always(500), always(1000)), kBlock);
  EXPECT_EQ(profitability.verdict(), Profitability::Verdict::kReplays);
}

TEST(Profitability, ReplaysThatAreALittleSlowerGiveWayAfterAllRounds) {
  Profitability profitability(false);
  EXPECT_EQ(settle(profitability, always(3'460'000), always(3'400'000)), Profitability::kRounds * kBlock);
  EXPECT_EQ(profitability.verdict(), Profitability::Verdict::kEager);
  EXPECT_EQ(profitability.describe(), "a replay takes 3.46 ms and an eager call 3.4 ms, the best of 48 each");
}

TEST(Profitability, ReplaysThatAreFarSlowerGiveWaySooner) {
  Profitability profitability(false);
  EXPECT_EQ(settle(profitability, always(2000), always(1000)), Profitability::kBadRounds * kBlock);
  EXPECT_EQ(profitability.verdict(), Profitability::Verdict::kEager);
}

TEST(Profitability, OnePercentIsNoReason) {
  Profitability profitability(false);
  EXPECT_EQ(settle(profitability, always(1009), always(1000)), Profitability::kGoodRounds * kBlock);
  EXPECT_EQ(profitability.verdict(), Profitability::Verdict::kReplays);
}

TEST(Profitability, ColdCallsAtTheBeginningAndAfterATurnDoNotCount) {
  Profitability profitability(false);
  int calls = 0;
  bool was_eager = false;
  const auto timed = [&](bool is_eager) {
    return ++calls <= Profitability::kFirstReplays || std::exchange(was_eager, is_eager) != is_eager ? 9e9
                                                                                                     : 1000.0;
  };
  settle(
      profitability, [&] { return timed(false); }, [&] { return timed(true); });
  EXPECT_THAT(profitability.describe(), HasSubstr("a replay takes 1 us and an eager call 1 us"));
}

TEST(Profitability, NoiseFlipsNothing) {
  for (int seed = 0; seed < 2000; ++seed) {
    Profitability same(false), faster(false);
    settle(same, noisy(1000, seed), noisy(1000, 5000 + seed));
    EXPECT_EQ(same.verdict(), Profitability::Verdict::kReplays) << seed;
    settle(faster, noisy(900, seed), noisy(1000, 5000 + seed));
    EXPECT_EQ(faster.verdict(), Profitability::Verdict::kReplays) << seed;
  }
}

TEST(Profitability, AnInterruptedRoundBeginsAgain) {
  Profitability profitability(false);
  for (int i = 0; i < Profitability::kFirstReplays + kBlock + 1; ++i)
    profitability.note(profitability.next(), 1000);
  EXPECT_EQ(profitability.next(), Profitability::Way::kEager);
  profitability.note(Profitability::Way::kReplay, 1000);
  EXPECT_EQ(profitability.next(), Profitability::Way::kReplay);
  settle(profitability, always(2000), always(1000));
  EXPECT_EQ(profitability.verdict(), Profitability::Verdict::kEager);
}

TEST(Profitability, AlwaysIsAVerdict) {
  const Profitability profitability(true);
  EXPECT_FALSE(profitability.is_open());
  EXPECT_EQ(profitability.verdict(), Profitability::Verdict::kReplays);
  EXPECT_EQ(profitability.describe(), "");
}

class Weighed : public testing::Test {
 protected:
  void SetUp() override { setenv("OVERDRIVE_CAPTURE_ALWAYS", "0", 1); }
  void TearDown() override { setenv("OVERDRIVE_CAPTURE_ALWAYS", "1", 1); }

  // Of a large input, which a replay copies, one element.
  static at::Tensor element_of(const at::Tensor& x) { return x.narrow(0, 1, 1) * 2; }
  const at::Tensor large_ = torch::arange(1 << 22).to(torch::kFloat);
};

constexpr int kWeighed = Profitability::kBadRounds * kBlock;
// Until a verdict, and some more.
constexpr int kCalls = Profitability::kFirstReplays + 2 * kWeighed + 20;

TEST_F(Weighed, AStepWhoseReplaysAreSlowerGivesWayAndSaysSo) {
  auto step = capture([](at::Tensor x) { return element_of(x); });
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(step(large_ + i).item<float>(), 2 * (1 + i));
  EXPECT_THAT(step.refusal(), HasSubstr("Replays are not faster here: a replay takes"));
  EXPECT_THAT(step.explain(), HasSubstr("an eager call"));
  const CaptureStats stats = step.stats();
  EXPECT_EQ(stats.weighed, static_cast<uint64_t>(kWeighed));
  for (int i = 0; i < 20; ++i) step(large_);
  EXPECT_EQ(step.stats().replayed, stats.replayed);
  EXPECT_EQ(step.stats().recorded, stats.recorded);
}

TEST_F(Weighed, AlwaysReplays) {
  auto step = capture([](at::Tensor x) { return element_of(x); }, {.always = true});
  for (int i = 0; i < kCalls; ++i) step(large_ + i);
  EXPECT_EQ(step.refusal(), "");
  EXPECT_EQ(step.stats().weighed, 0u);
  EXPECT_GT(step.stats().replayed, static_cast<uint64_t>(kCalls - 10));
}

// The time from call to call, with the backward in it.
TEST_F(Weighed, APartWhoseReplaysAreSlowerGivesWay) {
  const at::Tensor weight = torch::ones({1}).requires_grad_();
  auto part = captured([&](at::Tensor x) { return element_of(x) * weight; });
  for (int i = 0; i < kCalls; ++i) {
    part(large_).sum().backward();
    EXPECT_EQ(weight.grad().item<float>(), 2 * (i + 1));
  }
  EXPECT_THAT(part.refusal(), HasSubstr("Replays are not faster here")) << part.explain();
  EXPECT_EQ(part.stats().weighed, static_cast<uint64_t>(kWeighed));
}

// What is still weighed, or was, holds nobody up.
TEST_F(Weighed, APartThatGoesLeavesTheTurnToOthers) {
  const at::Tensor weight = torch::ones({1}).requires_grad_();
  const auto make = [&] { return captured([&](at::Tensor x) { return element_of(x) * weight; }); };
  {
    auto first = make();
    for (int i = 0; i < Profitability::kFirstReplays + 10; ++i) first(large_).sum().backward();
  }
  auto part = make();
  for (int i = 0; i < kCalls; ++i) part(large_).sum().backward();
  EXPECT_THAT(part.refusal(), HasSubstr("Replays are not faster here")) << part.explain();
}

TEST_F(Weighed, ABadValueOfTheVariableIsAnError) {
  setenv("OVERDRIVE_CAPTURE_ALWAYS", "yes", 1);
  auto step = capture([](at::Tensor x) { return element_of(x); });
  EXPECT_THAT(error_of([&] { step(large_); }), HasSubstr("OVERDRIVE_CAPTURE_ALWAYS is \"yes\""));
}

// The same bits whichever way a call goes: an optimizer's state, random numbers, gradients that come and go.
TEST_F(Weighed, ATrainingHasTheSameBits) {
  SideBySide both([] {
    Training training;
    torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Dropout(0.4), torch::nn::BatchNorm1d(8));
    training.model = net.ptr();
    training.optimizer = adam()(net->parameters());
    training.step = [net, optimizer = training.optimizer](const Tensors& in) mutable {
      optimizer->zero_grad();
      const at::Tensor loss = net->forward(in[0]).square().mean();
      loss.backward();
      optimizer->step();
      return loss.detach();
    };
    training.inputs = [](int i) { return Tensors{batch_of(i, {4, 8}, {1})[0]}; };
    return training;
  });
  EXPECT_EQ(both.run(kCalls), "") << both.step().explain();
  EXPECT_GT(both.step().stats().weighed, 0u);
}

}  // namespace
}  // namespace overdrive::test
