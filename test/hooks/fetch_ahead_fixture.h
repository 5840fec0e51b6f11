// Base of the tests of what is unpacked before its node asks: a hook that watches itself, and a small graph.
#pragma once

#include "test/hooks/hooks_fixture.h"
#include "test/support/gate.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>

namespace overdrive::hooks {

inline bool is_on_the_fetching_thread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string(name) == "overdrive-fetch";
}

// Copies, and notes by their ids what the fetching thread unpacked, and for which nodes.
class Watched : public SavedTensorHooks {
 public:
  Packed pack(const Tensor& tensor, const SaveInfo&) override {
    return {.tensors = {tensor.clone()}, .state = {}};
  }
  Tensor unpack(Packed& packed, const UnpackInfo& info) override {
    const bool ahead = is_on_the_fetching_thread();
    if (ahead && before_fetch) before_fetch();
    Tensor result = packed.tensors[0].clone();
    std::string node = info.node != nullptr ? info.node->name() : "none";
    {
      const std::lock_guard lock(mutex_);
      if (ahead) {
        fetched_.push_back(info.save.id);
        fetched_for_.push_back(std::move(node));
        memory_.push_back(result.storage().getWeakStorageImpl());
      } else {
        asked_.push_back(info.save.id);
        asked_for_.push_back(std::move(node));
        asked_on_.push_back(std::this_thread::get_id());
      }
    }
    changed_.notify_all();
    if (ahead && fails_ahead) throw std::runtime_error("a disk is on fire");
    return result;
  }
  void expect(const Packed&) override { ++expected; }
  bool lossless() const override { return true; }

  void wait_for(size_t fetched) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fetched_.size() >= fetched; });
  }
  std::vector<uint64_t> fetched() {
    const std::lock_guard lock(mutex_);
    return fetched_;
  }
  std::vector<std::string> fetched_for() {
    const std::lock_guard lock(mutex_);
    return fetched_for_;
  }
  std::vector<uint64_t> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::vector<std::string> asked_for() {
    const std::lock_guard lock(mutex_);
    return asked_for_;
  }
  std::vector<std::thread::id> asked_on() {
    const std::lock_guard lock(mutex_);
    return asked_on_;
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

  std::atomic<size_t> expected{0};
  std::function<void()> before_fetch;
  bool fails_ahead = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> fetched_, asked_;
  std::vector<std::string> fetched_for_, asked_for_;
  std::vector<std::thread::id> asked_on_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory_;
};

// Keeps the fetching thread busy with a graph of its own, until it is let go.
class BusyThread {
 public:
  BusyThread() {
    const auto hooks = std::make_shared<Watched>();
    hooks->before_fetch = [this] {
      started_.arrive_and_wait();
      go_on_.arrive_and_wait();
    };
    const ScopedHooks scope(schedulable(hooks, {.window_tensors = 0}));
    loss_ = leaf_of({2}).exp().sum();
    // The node must not be there before the thread: it would unpack by itself.
    loss_.register_hook([this](const Tensor&) { started_.arrive_and_wait(); });
    backward_ = std::thread([this] { loss_.backward(); });
    started_.arrive_and_wait();
  }
  ~BusyThread() { backward_.join(); }
  void let_go() { go_on_.arrive_and_wait(); }

 private:
  test::Gate started_{3}, go_on_{2};
  Tensor loss_;
  std::thread backward_;
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

}  // namespace overdrive::hooks
