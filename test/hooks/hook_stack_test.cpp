// Scopes of hooks: which hooks get a tensor, what they are told, and when.
#include "hooks/scope/hook_stack.h"

#include "test/hooks/hooks_fixture.h"
#include "test/support/sanitized.h"

#include <ATen/ThreadLocalState.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <pthread.h>

#include <functional>
#include <thread>

namespace overdrive::hooks {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class HookStack : public HooksTest {};

TEST_F(HookStack, EveryOpOfTheScopeAndNoneAfterIt) {
  const Tensor x = leaf_of({3}), y = x * 1;
  Tensor inside;
  {
    const ScopedHooks scope(copying_);
    EXPECT_EQ(active_hooks(), copying_);
    inside = y.exp();
  }
  const Tensor after = y.sin();
  EXPECT_THAT(copying_->saves, SizeIs(1));
  (inside + after).sum().backward();
  EXPECT_THAT(copying_->nodes, ElementsAre("ExpBackward0"));
  EXPECT_FALSE(copying_->grad_mode_in_pack || copying_->requires_grad_in_pack);
}

TEST_F(HookStack, TheInnermostDecides) {
  const auto inner = std::make_shared<CopyingHooks>();
  const Tensor y = leaf_of({3}) * 1;
  const ScopedHooks scope(copying_);
  {
    const ScopedHooks nested(inner);
    y.exp();
    {
      const ScopedHooks none(nullptr);
      EXPECT_EQ(active_hooks(), nullptr);
      y.exp();
    }
  }
  EXPECT_THAT(inner->saves, SizeIs(1));
  EXPECT_THAT(copying_->saves, IsEmpty());
  y.exp();
  EXPECT_THAT(copying_->saves, SizeIs(1));
}

TEST_F(HookStack, TellsWhatIsKnown) {
  const Tensor y = leaf_of({2, 3}) * 1, other = leaf_of({2, 3}) * 1;
  const ScopedHooks scope(copying_);
  const Tensor product = y * other;
  const auto node = product.grad_fn();
  const Tensor output = y.exp();
  const auto& saves = copying_->saves;
  ASSERT_THAT(saves, SizeIs(3));
  for (const SaveInfo& save : {saves[0], saves[1]}) {
    EXPECT_EQ(save.sequence_nr, node->sequence_nr());
    EXPECT_EQ(save.thread, node->thread_id());
    EXPECT_EQ(save.bytes, 24);
    EXPECT_EQ(save.dtype, at::kFloat);
  }
  EXPECT_EQ(saves[0].index, 0u);
  EXPECT_EQ(saves[1].index, 1u);
  EXPECT_EQ(saves[2].index, 0u);
  EXPECT_NE(saves[0].id, saves[1].id);
  EXPECT_THAT(copying_->ops, ElementsAre("", "", "ExpBackward0"));
}

TEST_F(HookStack, TravelsWithTheThreadsState) {
  const Tensor y = leaf_of({3}) * 1;
  const ScopedHooks scope(copying_);
  const at::ThreadLocalState state;
  std::thread([&] {
    EXPECT_EQ(active_hooks(), nullptr);
    const at::ThreadLocalStateGuard guard(state);
    EXPECT_EQ(active_hooks(), copying_);
    y.exp();
  }).join();
  EXPECT_THAT(copying_->saves, SizeIs(1));
}

TEST_F(HookStack, EndsThoughSomethingElseWasPutOnTop) {
  auto scope = std::make_optional<ScopedHooks>(copying_);
  struct Info : c10::DebugInfoBase {};
  const auto info = std::make_shared<Info>();
  {
    const c10::DebugInfoGuard other(c10::DebugInfoKind::TEST_INFO, info);
    scope.reset();
    EXPECT_EQ(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO), info.get());
    EXPECT_EQ(active_hooks(), nullptr);
  }
  EXPECT_EQ(active_hooks(), nullptr);
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
}

TEST_F(HookStack, WhatAHookSavesIsNotPacked) {
  int packs = 0;
  const auto hooks = make_hooks(
      [&](const Tensor& tensor, const SaveInfo&) {
        ++packs;
        const torch::AutoGradMode grad_mode(true);
        tensor.clone().requires_grad_().exp();
        return Packed{{tensor}, {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0]; });
  const Tensor y = leaf_of({3}) * 1;
  const ScopedHooks scope(hooks);
  y.exp();
  EXPECT_EQ(packs, 1);
}

// A hook that makes its tensor again by running the program's code, with hooks of its own around that.
TEST_F(HookStack, AScopeThatAHookOpensCounts) {
  const Tensor y = leaf_of({3}) * 1;
  const auto inner = copying_;
  std::vector<bool> active;
  const auto opening =
      make_hooks([](const Tensor& tensor, const SaveInfo&) { return Packed{.tensors = {tensor}, .state = {}}; },
                 [&](Packed& packed, const UnpackInfo&) {
                   {
                     const ScopedHooks scope(inner);
                     const c10::AutoGradMode graph(true);
                     active.push_back(active_hooks() == inner);
                     y.exp();
                   }
                   active.push_back(active_hooks() == nullptr);
                   return packed.tensors[0];
                 });
  Tensor loss;
  {
    const ScopedHooks scope(opening);
    loss = y.sin().sum();
    loss.backward();
  }
  EXPECT_THAT(active, ElementsAre(true, true));
  EXPECT_THAT(copying_->saves, SizeIs(1));
}

TEST_F(HookStack, UnpacksInTheGradModeOfTheNode) {
  const Tensor x = leaf_of({3});
  const auto loss = [&] {
    const ScopedHooks scope(copying_);
    return (x * 1).exp().sum();
  };
  loss().backward();
  EXPECT_FALSE(copying_->grad_mode_in_unpack);
  loss().backward({}, /*retain_graph=*/false, /*create_graph=*/true);
  EXPECT_TRUE(copying_->grad_mode_in_unpack);
  x.mutable_grad().reset();
}

TEST_F(HookStack, NeedsTheEngine) {
  uninstall();
  EXPECT_THAT(message_of([&] { const ScopedHooks scope(copying_); }).message,
              testing::HasSubstr("Call overdrive::install() first"));
  install();
}

TEST_F(HookStack, DisablingIsAnErrorEitherWayRound) {
  {
    const DisabledHooks disabled = disable_saved_tensor_hooks("not in here, please");
    EXPECT_EQ(message_of([&] { const ScopedHooks scope(copying_); }).message, "not in here, please");
    EXPECT_FALSE(at::SavedTensorDefaultHooks::is_enabled());
    {
      const DisabledHooks again = disable_saved_tensor_hooks("nor here");
      EXPECT_EQ(message_of([&] { const ScopedHooks scope(copying_); }).message, "nor here");
    }
    EXPECT_EQ(message_of([&] { const ScopedHooks scope(copying_); }).message, "not in here, please");
  }
  const ScopedHooks scope(copying_);
  EXPECT_EQ(message_of([&] { const DisabledHooks disabled("too late"); }).message, "too late");
}

TEST_F(HookStack, HooksThatTheHostDisabledStayDisabled) {
  at::SavedTensorDefaultHooks::disable("the host says no");
  EXPECT_EQ(message_of([&] { const ScopedHooks scope(copying_); }).message, "the host says no");
  at::SavedTensorDefaultHooks::enable();
}

// Ends the thread that calls it, when told to.
class EndsThreads : public CopyingHooks {
 public:
  Packed pack(const Tensor& tensor, const SaveInfo& info) override {
    if (in_pack) test::end_thread();
    return CopyingHooks::pack(tensor, info);
  }
  Tensor unpack(Packed& from, const UnpackInfo& info) override {
    if (in_unpack) test::end_thread();
    return CopyingHooks::unpack(from, info);
  }
  std::atomic<bool> in_pack = false, in_unpack = false;
};

// With and without tensors that wait and are packed by a later save. The graph that was going back stays
// usable.
TEST_F(HookStack, AThreadMayEndInsidePackAndUnpack) {
  const auto ending = std::make_shared<EndsThreads>();
  const auto survives = [](const std::function<void()>& body) {
    bool survived = false;
    std::thread([&] {
      body();
      survived = true;
    }).join();
    return survived;
  };
  const auto forward = [](const HooksPtr& hooks, const Tensor& x) {
    const ScopedHooks scope(hooks);
    return x.exp().sin().tanh().sum();
  };
  for (const HooksPtr& hooks : {HooksPtr(ending), schedulable(ending, {.window_tensors = 1, .depth = 0})}) {
    const Tensor x = leaf_of({4}), plain = x.detach().clone().requires_grad_();
    forward(nullptr, plain).backward();

    ending->in_pack = true;
    EXPECT_FALSE(survives([&] { forward(hooks, x); }));
    ending->in_pack = false;
    const Tensor loss = forward(hooks, x);
    ending->in_unpack = true;
    EXPECT_FALSE(survives([&] { loss.backward({}, /*retain_graph=*/true); }));
    ending->in_unpack = false;
    EXPECT_FALSE(x.grad().defined());
    loss.backward();
    EXPECT_TRUE(same_bits(x.grad(), plain.grad()));
  }
}

}  // namespace
}  // namespace overdrive::hooks
