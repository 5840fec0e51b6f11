#include "forward_ad/levels/forward_grad.h"

#include "forward_ad/levels/level.h"
#include "forward_ad/levels/level_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

namespace overdrive::forward_ad {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

class ForwardGradTest : public testing::Test {
 protected:
  void SetUp() override { level_ = LevelRegistry::get_next_idx(); }
  void TearDown() override {
    if (LevelRegistry::try_get_by_idx(level_)) LevelRegistry::release_idx(level_);
    EXPECT_EQ(LevelRegistry::open_count(), 0u);
  }
  std::shared_ptr<ForwardADLevel> level() { return LevelRegistry::get_by_idx(level_); }

  uint64_t level_ = 0;
};

// A tensor that runs code when its memory goes away.
at::Tensor tensor_with_destructor(std::function<void()> when_destroyed) {
  auto* data = new double(1);
  return at::from_blob(
      data, {},
      [when_destroyed](void* memory) {
        delete static_cast<double*>(memory);
        when_destroyed();
      },
      at::kDouble);
}

TEST_F(ForwardGradTest, KeepsTheFirstTangent) {
  auto grad = std::make_shared<ForwardGrad>();
  at::Tensor first = at::ones({2}), second = at::zeros({2});
  grad->set_value(first, level_);
  grad->set_value(second, level_);
  EXPECT_TRUE(grad->value(level_).is_same(first));
  EXPECT_TRUE(grad->peek(level_).is_same(first));
}

TEST_F(ForwardGradTest, GivesAnUndefinedTensorWhenThereIsNone) {
  auto grad = std::make_shared<ForwardGrad>();
  EXPECT_TRUE(grad->empty());
  EXPECT_FALSE(grad->contains(level_));
  EXPECT_FALSE(grad->value(level_).defined());
  EXPECT_FALSE(grad->peek(level_).defined());
  EXPECT_FALSE(ForwardGrad::undef_grad().defined());
}

TEST_F(ForwardGradTest, HoldsSeveralLevels) {
  uint64_t inner = LevelRegistry::get_next_idx();
  auto grad = std::make_shared<ForwardGrad>();
  grad->set_value(at::ones({1}), level_);
  grad->set_value(at::zeros({1}), inner);
  EXPECT_THAT(grad->levels(), UnorderedElementsAre(level_, inner));
  LevelRegistry::release_idx(inner);
  EXPECT_FALSE(grad->contains(inner));
  EXPECT_TRUE(grad->contains(level_));
  grad->clear();
}

TEST_F(ForwardGradTest, RegistersWithTheLevelAndLeavesIt) {
  auto grad = std::make_shared<ForwardGrad>();
  grad->set_value(at::ones({1}), level_);
  EXPECT_EQ(level()->grad_count(), 1u);
  grad->reset(level_);
  EXPECT_EQ(level()->grad_count(), 0u);
  grad->set_value(at::ones({1}), level_);
  grad->clear();
  EXPECT_EQ(level()->grad_count(), 0u) << "a tensor that dies before its level leaves nothing there";
}

TEST_F(ForwardGradTest, RefusesToResetWhatIsNotThere) {
  auto grad = std::make_shared<ForwardGrad>();
  try {
    grad->reset(level_);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), HasSubstr("Resetting a non-existent level."));
  }
  EXPECT_THROW(grad->reset(level_, /*update_level=*/false), c10::Error);
}

TEST_F(ForwardGradTest, RefusesATangentOnALevelThatIsNotOpen) {
  auto grad = std::make_shared<ForwardGrad>();
  EXPECT_THROW(grad->set_value(at::ones({1}), level_ + 1), c10::Error);
  EXPECT_TRUE(grad->empty());
  level()->release();  // as when another thread releases it between look-up and registration
  EXPECT_THROW(grad->set_value(at::ones({1}), level_), c10::Error);
  EXPECT_TRUE(grad->empty()) << "the tangent is taken back";
}

TEST_F(ForwardGradTest, OutlivesItsLevel) {
  auto grad = std::make_shared<ForwardGrad>();
  bool destroyed = false;
  grad->set_value(tensor_with_destructor([&] { destroyed = true; }), level_);
  LevelRegistry::release_idx(level_);
  EXPECT_TRUE(destroyed) << "the release drops the tangent";
  EXPECT_TRUE(grad->empty());
  grad->clear();
}

TEST_F(ForwardGradTest, DestroysATangentOutsideItsLock) {
  auto grad = std::make_shared<ForwardGrad>();
  int calls = 0;
  auto come_back = [&] { calls += grad->contains(level_) ? 100 : 1; };  // would deadlock under the lock
  grad->set_value(tensor_with_destructor(come_back), level_);
  grad->reset(level_);
  grad->set_value(tensor_with_destructor(come_back), level_);
  grad->clear();
  grad->set_value(tensor_with_destructor([&] { calls += 10 + static_cast<int>(level()->grad_count()); }),
                  level_);
  level()->release();
  EXPECT_EQ(calls, 12);
}

// Threads set, read, reset and clear grads of a level that is released meanwhile.
TEST_F(ForwardGradTest, SurvivesAReleaseBesideOtherThreads) {
  constexpr int kThreads = 4;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int round = 0; round < 25; ++round) {
    uint64_t level = LevelRegistry::get_next_idx();
    std::atomic<int> living{0}, ready{0};
    auto tangent = [&] {
      ++living;
      return tensor_with_destructor([&living] { --living; });
    };
    auto shared = std::make_shared<ForwardGrad>();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(seed + 31 * round + t);
        ++ready;
        for (bool open = true; open;) {
          auto own = std::make_shared<ForwardGrad>();
          try {
            own->set_value(tangent(), level);
            shared->set_value(tangent(), level);
            if (random() % 2) shared->reset(level);
          } catch (const c10::Error&) {
            open = LevelRegistry::try_get_by_idx(level) != nullptr;
          }
          (void)shared->value(level);
          own->clear();
        }
      });
    }
    while (ready < kThreads) std::this_thread::yield();
    LevelRegistry::release_idx(level);
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(shared->empty());
    EXPECT_EQ(living, 0) << "a tangent outlived its level and its grad";
  }
}

}  // namespace
}  // namespace overdrive::forward_ad
