// Hooks with a schedule, the backward: what is unpacked before its node asks, for whom, and in which order.
#include "test/hooks/fetch_ahead_fixture.h"

#include <ATen/autocast_mode.h>

namespace overdrive::hooks {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST_F(Ahead, FetchesInTheOrderOfTheRun) {
  build(watched_, x_).backward();
  const std::vector<uint64_t> order = watched_->asked();
  const std::vector<std::string> nodes = watched_->asked_for();
  ASSERT_THAT(nodes, UnorderedElementsAre("CosBackward0", "TanhBackward0", "SinBackward0", "ExpBackward0"));
  const Tensor expected = std::exchange(x_.mutable_grad(), {});
  ASSERT_THAT(watched_->fetched(), IsEmpty()) << "without the mark nothing is fetched ahead";
  ASSERT_EQ(order.size(), kTensors);

  const Tensor loss = build(ahead(), x_);
  std::vector<uint64_t> early;
  at_the_beginning(loss, [&] {
    watched_->wait_for(order.size());
    early = watched_->fetched();
  });
  loss.backward();
  EXPECT_THAT(early, ElementsAreArray(order));
  EXPECT_THAT(watched_->fetched_for(), ElementsAreArray(nodes));
  EXPECT_TRUE(same_bits(x_.grad(), expected));
  EXPECT_EQ(stats().ahead_hits + stats().ahead_waits, kTensors) << "the last may just be coming";
  EXPECT_EQ(stats().ahead_misses, 0u);
  EXPECT_EQ(stats().ahead_ratio(), 1);
  EXPECT_EQ(stats().ahead_bytes, kTensors * 4 * sizeof(float));
}

TEST_F(Ahead, GoesNoFurtherThanTheSchedule) {
  for (const HooksPtr& hooks : {ahead(/*depth=*/1), ahead(100, /*bytes=*/1)}) {
    const size_t before = watched_->fetched().size();
    const Tensor loss = build(hooks, x_);
    size_t early = 0;
    at_the_beginning(loss, [&] {
      watched_->wait_for(before + 1);
      early = watched_->fetched().size() - before;
    });
    loss.backward();
    EXPECT_EQ(early, 1u);
  }
}

TEST_F(Ahead, RunsInNoneOfTheCallersModes) {
  std::atomic<bool> grad_mode{false}, autocast{false}, hooks_active{false};
  watched_->before_fetch = [&] {
    if (c10::GradMode::is_enabled()) grad_mode = true;
    if (at::autocast::is_autocast_enabled(at::kCPU)) autocast = true;
    if (active_hooks() != nullptr) hooks_active = true;
  };
  const Tensor loss = build(ahead(), x_);
  at_the_beginning(loss, [&] { watched_->wait_for(1); });
  at::autocast::set_autocast_enabled(at::kCPU, true);
  {
    const ScopedHooks scope(copying_);
    torch::autograd::grad({loss}, {x_}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_FALSE(grad_mode || autocast || hooks_active);
}

TEST_F(Ahead, APrunedRunFetchesOnlyForTheNodesThatItRuns) {
  const Tensor b = leaf_of({4});
  Tensor left, loss;
  {
    const ScopedHooks scope(ahead());
    left = x_.exp() * 2;
    loss = (left * b.exp()).sum();
  }
  at_the_beginning(loss, [&] { watched_->wait_for(1); });
  const Tensor grad = torch::autograd::grad({loss}, {left}, {}, /*retain_graph=*/true)[0];
  EXPECT_TRUE(same_bits(grad, b.detach().exp()));
  EXPECT_TRUE(watched_->lets_go_of_what_was_fetched());
  EXPECT_THAT(watched_->fetched(), testing::Not(testing::Contains(1u))) << "that is the exp of x";
}

TEST_F(Ahead, ANodeWaitsForWhatIsUnderWay) {
  test::Gate started(2);
  std::atomic<bool> first{true};
  watched_->before_fetch = [&] {
    if (first.exchange(false)) started.arrive_and_wait();
  };
  const Tensor loss = build(ahead(), x_);
  at_the_beginning(loss, [&] { started.arrive_and_wait(); });
  loss.backward();
  EXPECT_GE(stats().ahead_hits + stats().ahead_waits, 1u);
  EXPECT_TRUE(same_bits(x_.grad(), torch::autograd::grad({build(nullptr, x_)}, {x_})[0]));
}

// {x} --Exp--> {a} --Sin--> {b}: both save a, and Sin lets it go before Exp asks.
TEST_F(Ahead, WhatTwoNodesWantIsFetchedOnce) {
  const Tensor expected = torch::autograd::grad({x_.exp().sin().sum()}, {x_})[0];
  const auto gradient = [&](std::function<void()> at_first) {
    Tensor loss;
    {
      const ScopedHooks scope(ahead());
      loss = x_.exp().sin().sum();
    }
    at_the_beginning(loss, std::move(at_first));
    return torch::autograd::grad({loss}, {x_})[0];
  };
  EXPECT_TRUE(same_bits(gradient([&] { watched_->wait_for(1); }), expected));
  EXPECT_THAT(watched_->fetched(), testing::SizeIs(1));
  EXPECT_THAT(watched_->asked(), IsEmpty());
  EXPECT_TRUE(watched_->lets_go_of_what_was_fetched());
  // And when the first of them comes before the thread does.
  BusyThread busy;
  EXPECT_TRUE(same_bits(gradient([] {}), expected));
  EXPECT_THAT(watched_->fetched(), testing::SizeIs(1));
  EXPECT_THAT(watched_->asked(), testing::SizeIs(1));
  busy.let_go();
}

TEST_F(Ahead, HooksAreToldWhatIsInLine) {
  BusyThread busy;
  const Tensor loss = build(min_bytes(1, ahead()), x_);
  at_the_beginning(loss, [&] {
    busy.let_go();
    watched_->wait_for(kTensors);
  });
  loss.backward();
  EXPECT_EQ(watched_->expected, kTensors - 1) << "all but the one that is fetched first";
  const HooksPtr composed = compose(keep(), watched_);
  composed->expect(composed->pack(x_.detach(), SaveInfo{}));
  EXPECT_EQ(watched_->expected, kTensors);
}

TEST_F(Ahead, UnmarkedHooksStayOnTheThreadThatAsks) {
  build(watched_, x_).backward();
  EXPECT_THAT(watched_->fetched(), IsEmpty());
  EXPECT_EQ(stats().ahead_misses, 0u);
}

}  // namespace
}  // namespace overdrive::hooks
