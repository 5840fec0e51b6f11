// Hooks with a schedule, the backward: what becomes of what was fetched after errors, when nobody asks, and
// when the graph goes first.
#include "test/hooks/fetch_ahead_fixture.h"

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;

TEST_F(Ahead, AnErrorIsTheBusinessOfTheNode) {
  const Tensor expected = torch::autograd::grad({build(nullptr, x_)}, {x_})[0];
  watched_->fails_ahead = true;
  const Tensor loss = build(ahead(), x_);
  at_the_beginning(loss, [&] { watched_->wait_for(1); });
  loss.backward();
  EXPECT_TRUE(same_bits(x_.grad(), expected));
  EXPECT_EQ(stats().ahead_hits, 0u);
  EXPECT_GT(stats().ahead_misses, 0u);
}

TEST_F(Ahead, AWrongTensorIsAnErrorOfTheNode) {
  const HooksPtr wrong =
      schedulable(make_hooks(
                      [](const Tensor& tensor, const SaveInfo&) {
                        return Packed{{tensor.clone()}, {}};
                      },
                      [](Packed&, const UnpackInfo&) { return at::ones({7}); }, {.name = "seven"}),
                  {.window_tensors = 0});
  EXPECT_THAT(message_of([&] { build(wrong, x_).backward(); }).message,
              testing::AllOf(HasSubstr("seven"), HasSubstr("[7]"), HasSubstr("Backward0")));
}

TEST_F(Ahead, WhatNobodyAskedForIsDropped) {
  const Tensor loss = build(ahead(), x_);
  at_the_beginning(loss, [&] {
    watched_->wait_for(kTensors);
    throw std::runtime_error("enough");
  });
  EXPECT_EQ(message_of([&] { loss.backward({}, /*retain_graph=*/true); }).message, "enough");
  EXPECT_TRUE(watched_->lets_go_of_what_was_fetched());
  EXPECT_GE(stats().ahead_unused, kTensors - 1);
}

TEST_F(Ahead, AGraphMayBeFreedWhileAFetchIsUnderWay) {
  test::Gate started(2), go_on(2);
  std::atomic<bool> first{true};
  watched_->before_fetch = [&] {
    if (!first.exchange(false)) return;
    started.arrive_and_wait();
    go_on.arrive_and_wait();
  };
  std::weak_ptr<SavedTensorHooks> hooks;
  base::WeakNodePtr last{base::NodePtr()};
  {
    const HooksPtr made = ahead();
    hooks = made;
    Tensor loss = build(made, x_);
    last = loss.grad_fn();
    at_the_beginning(loss, [&] {
      started.arrive_and_wait();
      throw std::runtime_error("enough");
    });
    EXPECT_EQ(message_of([&] { loss.backward(); }).message, "enough");
  }
  EXPECT_FALSE(hooks.expired()) << "the fetch needs them";
  EXPECT_TRUE(last.expired()) << "a fetch keeps its own node, not the graph";
  go_on.arrive_and_wait();
  watched_->wait_for(1);
  EXPECT_THAT(watched_->fetched_for()[0], HasSubstr("Backward0")) << "looked at when the graph was gone";
  const Tensor loss = build(ahead(), x_);
  at_the_beginning(loss, [&] { watched_->wait_for(2); });  // so the thread is done with the first
  loss.backward();
  EXPECT_TRUE(hooks.expired());
}

TEST_F(Ahead, TwoBackwardsOfOneGraphAtOnce) {
  const Tensor expected = torch::autograd::grad({build(nullptr, x_)}, {x_})[0];
  const Tensor loss = build(ahead(), x_);
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> results(2);
    test::on_threads(2, [&](int i) {
      results[static_cast<size_t>(i)] = torch::autograd::grad({loss}, {x_}, {}, /*retain_graph=*/true)[0];
    });
    for (const Tensor& result : results) EXPECT_TRUE(same_bits(result, expected));
  }
}

}  // namespace
}  // namespace overdrive::hooks
