// Hooks with a schedule, the backward: what is unpacked before its node asks, in which order, and what becomes
// of it when nobody asks.
#include "test/hooks/hooks_fixture.h"
#include "test/support/gate.h"

#include <ATen/autocast_mode.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>

namespace overdrive::hooks {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

bool is_on_the_fetching_thread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string(name) == "overdrive-fetch";
}

// Copies, and notes by their ids what the fetching thread unpacked.
class Watched : public SavedTensorHooks {
 public:
  Packed pack(const Tensor& tensor, const SaveInfo&) override {
    return {.tensors = {tensor.clone()}, .state = {}};
  }
  Tensor unpack(Packed& packed, const UnpackInfo& info) override {
    const bool ahead = is_on_the_fetching_thread();
    if (ahead && before_fetch) before_fetch();
    Tensor result = packed.tensors[0].clone();
    {
      const std::lock_guard lock(mutex_);
      if (ahead) {
        fetched_.push_back(info.save.id);
        memory_.push_back(result.storage().getWeakStorageImpl());
      } else {
        asked_.push_back(info.save.id);
      }
    }
    changed_.notify_all();
    if (ahead && fails_ahead) throw std::runtime_error("a disk is on fire");
    return result;
  }
  bool lossless() const override { return true; }

  void wait_for(size_t fetched) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fetched_.size() >= fetched; });
  }
  std::vector<uint64_t> fetched() {
    const std::lock_guard lock(mutex_);
    return fetched_;
  }
  std::vector<uint64_t> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // What is being fetched at this moment goes a little later.
  bool lets_go_of_what_was_fetched() {
    const auto is_gone = [](const auto& memory) { return memory.use_count() == 0; };
    for (int i = 0; i < 5'000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (std::all_of(memory_.begin(), memory_.end(), is_gone)) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  std::function<void()> before_fetch;
  bool fails_ahead = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> fetched_, asked_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory_;
};

class Ahead : public HooksTest {
 protected:
  void SetUp() override {
    HooksTest::SetUp();
    reset_stats();
  }
  // Packs when saved, fetches ahead.
  HooksPtr ahead(int depth = 100, int64_t bytes = 1 << 20) const {
    return schedulable(watched_, {.window_tensors = 0, .depth = depth, .ahead_bytes = bytes});
  }
  // {x} --Exp--> {a} --Sin--> {b} --Cos--+--> {loss}
  //                     +-----Tanh-------+
  // Each saves one tensor, and shares none.
  static constexpr size_t kTensors = 4;
  Tensor build(const HooksPtr& hooks, const Tensor& x) {
    const ScopedHooks scope(hooks, {.share = false});
    const Tensor a = x.exp(), b = a.sin(), c = a.tanh();
    return (b.cos() + c).sum();
  }
  // Before the first node of the backward that has something to ask for.
  static Tensor at_the_beginning(const Tensor& loss, std::function<void()> call) {
    loss.register_hook([call = std::move(call)](const Tensor&) { call(); });
    return loss;
  }

  const std::shared_ptr<Watched> watched_ = std::make_shared<Watched>();
  const Tensor x_ = leaf_of({4});
};

TEST_F(Ahead, FetchesInTheOrderOfTheRun) {
  build(watched_, x_).backward();
  const std::vector<uint64_t> order = watched_->asked();
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

TEST_F(Ahead, AGraphMayBeFreedWhileAFetchIsUnderWay) {
  test::Gate started(2), go_on(2);
  std::atomic<bool> first{true};
  watched_->before_fetch = [&] {
    if (!first.exchange(false)) return;
    started.arrive_and_wait();
    go_on.arrive_and_wait();
  };
  std::weak_ptr<SavedTensorHooks> hooks;
  {
    const HooksPtr made = ahead();
    hooks = made;
    Tensor loss = build(made, x_);
    at_the_beginning(loss, [&] {
      started.arrive_and_wait();
      throw std::runtime_error("enough");
    });
    EXPECT_EQ(message_of([&] { loss.backward(); }).message, "enough");
  }
  EXPECT_FALSE(hooks.expired()) << "the fetch needs them";
  go_on.arrive_and_wait();
  watched_->wait_for(1);
  const Tensor loss = build(ahead(), x_);
  at_the_beginning(loss, [&] { watched_->wait_for(2); });  // so the thread is done with the first
  loss.backward();
  EXPECT_TRUE(hooks.expired());
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

TEST_F(Ahead, UnmarkedHooksStayOnTheThreadThatAsks) {
  build(watched_, x_).backward();
  EXPECT_THAT(watched_->fetched(), IsEmpty());
  EXPECT_EQ(stats().ahead_misses, 0u);
}

}  // namespace
}  // namespace overdrive::hooks
