// Errors of SavedTensor: LibTorch's, word for word, and what ours add.
#include "test/hooks/saved_kinds.h"

namespace overdrive::hooks {
namespace {

using torch::autograd::AnomalyMode;

template <typename Saved>
struct Errors {
  static Caught changed(bool anomaly, SavedAs as) {
    AnomalyMode::set_enabled(anomaly);
    Tensor y = leaf_of({3}) * 2;
    Saved saved(y, as);
    const NodePtr owner = y.grad_fn();
    y.detach().add_(1);
    const Caught caught = message_of([&] { saved.unpack(owner); });
    AnomalyMode::set_enabled(false);
    return caught;
  }
  static Caught detached() {
    Tensor y = leaf_of({3}) * 2;
    Saved saved(y);
    y.detach_();
    return message_of([&] { saved.unpack(test::make_node("owner", {})); });
  }
  static Caught writing_pack() {
    Saved saved(at::ones({3}));
    return message_of([&] { saved.register_hooks(std::make_unique<WritingHook>()); });
  }
  static std::vector<Caught> registering() {
    const auto hook = [] { return std::make_unique<KeepingHook>(); };
    Saved twice(at::ones({3})), released(at::ones({3})), nothing;
    twice.register_hooks(hook());
    released.release();
    return {message_of([&] { twice.register_hooks(hook()); }),
            message_of([&] { released.register_hooks(hook()); }),
            message_of([&] { nothing.register_hooks(hook()); })};
  }
  static Caught released() {
    Saved saved(at::ones({3}));
    saved.release();
    return message_of([&] { saved.unpack(nullptr); });
  }
};

class SavedTensorErrors : public HooksTest {};

TEST_F(SavedTensorErrors, AreStocksWordForWord) {
  for (const bool anomaly : {false, true}) {
    for (const SavedAs as : {SavedAs::kInput, SavedAs::kOutput}) {
      const Caught stock = Errors<Stock>::changed(anomaly, as);
      EXPECT_THAT(stock.message, testing::HasSubstr("is at version 1; expected version 0"));
      EXPECT_EQ(Errors<Ours>::changed(anomaly, as), stock);
    }
  }
  EXPECT_THAT(Errors<Stock>::detached().message, testing::HasSubstr("detached in-place"));
  EXPECT_EQ(Errors<Ours>::detached(), Errors<Stock>::detached());
  EXPECT_EQ(Errors<Ours>::registering(), Errors<Stock>::registering());
  EXPECT_EQ(Errors<Ours>::released(), Errors<Stock>::released());
  EXPECT_THAT(Errors<Stock>::writing_pack().message,
              testing::StartsWith("A saved tensor pack hook is modifying"));
  EXPECT_THAT(Errors<Ours>::writing_pack().message,
              testing::StartsWith("A saved tensor pack hook is modifying"));
}

TEST_F(SavedTensorErrors, ASecondBackwardNamesTheNode) {
  SavedTensor saved(at::ones({3}));
  saved.release();
  const NodePtr owner = test::make_node("TheOwner", {});
  EXPECT_THAT(message_of([&] { saved.unpack(*owner); }).message,
              testing::AllOf(testing::StartsWith(torch::autograd::ERR_BACKWARD_TWICE),
                             testing::EndsWith("one of TheOwner.")));
}

TEST_F(SavedTensorErrors, AChangedTensorIsNoticedThroughHooksToo) {
  Tensor y = leaf_of({3}) * 2;
  SavedTensor saved(y);
  saved.register_hooks(keep());
  y.detach().add_(1);
  // LibTorch's words; before 2.13 with the node's whole name.
  EXPECT_THAT(message_of([&] { saved.unpack(); }).message,
              testing::ContainsRegex("\\[CPUFloatType \\[3\\]\\], which is output 0 of Mul(Backward)?1, is at "
                                     "version 1; expected version 0 instead\\."));
}

TEST_F(SavedTensorErrors, WhatWasMovedAwayIsGone) {
  for (const HooksPtr& hooks : {HooksPtr(), keep()}) {
    const ScopedHooks scope(hooks);
    SavedTensor first(at::ones({3}));
    const SavedTensor second = std::move(first);
    EXPECT_TRUE(second.unpack().defined());
    EXPECT_THAT(message_of([&] { first.unpack(); }).message,
                testing::StartsWith(torch::autograd::ERR_BACKWARD_TWICE));
    first = SavedTensor(at::ones({2}));
    EXPECT_EQ(first.unpack().numel(), 2);
  }
}

TEST_F(SavedTensorErrors, AnOutputNeedsItsOwner) {
  Tensor y = leaf_of({3}) * 2;
  SavedTensor saved(y, SavedAs::kOutput);
  EXPECT_THAT(message_of([&] { saved.unpack(); }).message, testing::HasSubstr("unpack(*this)"));
}

}  // namespace
}  // namespace overdrive::hooks
