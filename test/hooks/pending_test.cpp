// Hooks with a schedule, the forward: when tensors that wait are packed, and what becomes of those that are
// not.
#include "test/hooks/hooks_fixture.h"

namespace overdrive::hooks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Sizes = std::vector<int64_t>;

class PendingTensors : public HooksTest {
 protected:
  HooksPtr waiting(int64_t tensors = 100, int64_t bytes = 1 << 20) const {
    return schedulable(copying_, {.window_tensors = tensors, .window_bytes = bytes, .depth = 0});
  }
  static bool is_gone(const c10::weak_intrusive_ptr<c10::StorageImpl>& storage) {
    return storage.use_count() == 0;
  }

  const Tensor y_ = leaf_of({4}) * 1;
};

TEST_F(PendingTensors, ArePackedWhenTheirLastUseIsOver) {
  const ScopedHooks scope(waiting());
  Tensor a = y_.exp();  // saves its result
  const auto memory = a.storage().getWeakStorageImpl();
  Tensor b = a.sin();  // and so does this, of the same memory
  EXPECT_THAT(copying_->packed, IsEmpty()) << "it is still in use";
  a.reset();
  EXPECT_FALSE(is_gone(memory));
  const Tensor c = b.narrow(0, 0, 2).exp();  // looks
  EXPECT_THAT(copying_->packed, ElementsAre(Sizes{4}));
  EXPECT_TRUE(is_gone(memory));
  c.sum().backward();
  EXPECT_THAT(copying_->packed, SizeIs(1)) << "what a backward uses needs no packing";
  EXPECT_THAT(copying_->nodes, ElementsAre("SinBackward0")) << "which hands it to the other";
}

TEST_F(PendingTensors, AreLookedAtWhenSomethingIsSavedThatIsNotForTheHook) {
  const ScopedHooks scope(min_bytes(16, waiting()));
  Tensor a = y_.exp();
  const Tensor b = a.sum();
  a.reset();
  const Tensor c = leaf_of({1}).exp();
  EXPECT_THAT(copying_->packed, ElementsAre(Sizes{4}));
}

TEST_F(PendingTensors, StayWhileTheProgramHasAViewsBaseThatWasSavedLater) {
  const ScopedHooks scope(waiting());
  const Tensor x = leaf_of({8}) * 1;
  const Tensor a = x.narrow(0, 0, 4).sin(), b = x.narrow(0, 4, 4).sin(), c = x.sin();
  const Tensor d = leaf_of({2}).exp();
  EXPECT_THAT(copying_->packed, IsEmpty()) << "the program has all of them";
}

TEST_F(PendingTensors, ArePackedWhenTooManyWait) {
  std::vector<Tensor> kept;
  const ScopedHooks scope(waiting(/*tensors=*/3));
  for (int64_t i = 1; i <= 5; ++i) kept.push_back(leaf_of({i}).exp());
  EXPECT_THAT(copying_->packed, ElementsAre(Sizes{1}, Sizes{2})) << "the oldest first";
}

TEST_F(PendingTensors, ArePackedWhenTooManyBytesWait) {
  std::vector<Tensor> kept;
  const ScopedHooks scope(waiting(100, /*bytes=*/10 * 4));
  for (int64_t i = 1; i <= 4; ++i) kept.push_back(leaf_of({i}).exp());
  EXPECT_THAT(copying_->packed, IsEmpty());
  kept.push_back(leaf_of({3}).exp());
  EXPECT_THAT(copying_->packed, ElementsAre(Sizes{1}, Sizes{2}));
}

// Bytes that wait are held as those that are packed: they are counted until they are packed, changed or let go.
TEST_F(PendingTensors, CountAsSavedBytes) {
  const auto waiting_bytes = [] { return stats().waiting_bytes; };
  ASSERT_EQ(waiting_bytes(), 0);
  const ScopedHooks scope(waiting());
  Tensor a = y_.exp(), b = leaf_of({6}).exp();
  EXPECT_EQ(waiting_bytes(), (4 + 6) * sizeof(float));
  const Tensor c = a.sin();  // of memory that waits already
  EXPECT_EQ(waiting_bytes(), (4 + 6) * sizeof(float));
  reset_stats();
  EXPECT_EQ(waiting_bytes(), (4 + 6) * sizeof(float)) << "they still do";
  b.reset();
  EXPECT_EQ(waiting_bytes(), 4 * sizeof(float)) << "gone with its graph";
  a.reset();
  const Tensor d = leaf_of({2}).exp();  // looks, and packs the first
  EXPECT_EQ(waiting_bytes(), 2 * sizeof(float));
}

TEST_F(PendingTensors, AreUsedUnpackedByABackward) {
  const Tensor x = leaf_of({4});
  const auto gradient = [&](const HooksPtr& hooks) {
    Tensor loss;
    {
      const ScopedHooks scope(hooks);
      const Tensor a = x.exp();
      loss = (a * a.sin()).sum();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
    }
    return std::exchange(x.mutable_grad(), {});
  };
  const Tensor expected = gradient(nullptr);
  EXPECT_TRUE(same_bits(gradient(waiting()), expected));
  EXPECT_THAT(copying_->packed, IsEmpty());
  EXPECT_THAT(copying_->nodes, IsEmpty());
}

TEST_F(PendingTensors, ThatAreChangedMeanwhileAreTheUsualError) {
  for (const bool check : {true, false}) {
    const auto run = [&](const HooksPtr& hooks, bool packs_afterwards) {
      const Tensor x = leaf_of({3});
      const ScopedHooks scope(hooks, {.check_in_place = check});
      Tensor y = x * 1;
      const Tensor loss = y.sin().sum();
      y.detach().add_(1);
      y.reset();
      const Tensor looks = packs_afterwards ? leaf_of({5}).exp() : Tensor();
      return message_of([&] { loss.backward(); });
    };
    const auto plainly = [&] {
      const Tensor x = leaf_of({3});
      const Tensor y = x * 1, loss = y.sin().sum();
      y.detach().add_(1);
      return message_of([&] { loss.backward(); });
    };
    EXPECT_EQ(run(waiting(), false), plainly()) << "check_in_place = " << check;
    EXPECT_EQ(run(waiting(), true), plainly()) << "check_in_place = " << check;
    EXPECT_THAT(copying_->packed, testing::Not(testing::Contains(Sizes{3})));
  }
}

TEST_F(PendingTensors, LossyPacksOfViewsWaitTogether) {
  copying_->is_lossless = false;
  const ScopedHooks scope(waiting());
  Tensor a = y_ * 2;
  const Tensor b = a.sin() + a.flip(0).cos() + a.view({2, 2}).sin().view({4});
  a.reset();
  const Tensor c = y_.exp();
  EXPECT_THAT(copying_->packed, testing::Contains(Sizes{4}));
  EXPECT_THAT(copying_->packed, testing::Contains((Sizes{2, 2})));
}

TEST_F(PendingTensors, AreNamedByTheirOwnNodeWhereTheyAreItsOutput) {
  const ScopedHooks scope(waiting());
  Tensor a = y_.exp();
  const Tensor b = a.sum();
  a.reset();
  const Tensor c = y_.sin();
  EXPECT_THAT(copying_->ops, ElementsAre("ExpBackward0"));
}

TEST_F(PendingTensors, AnErrorOfALatePackComesOnceAndLosesNothing) {
  bool fails = true;
  const auto failing = make_hooks(
      [&](const Tensor& tensor, const SaveInfo&) -> Packed {
        TORCH_CHECK(!fails, "no room for ", tensor.sizes());
        return {.tensors = {tensor.clone()}, .state = {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0]; });
  const Tensor x = leaf_of({4});
  Tensor loss;
  {
    const ScopedHooks scope(schedulable(failing, {.depth = 0}));
    Tensor a = x.exp();
    loss = a.sin().sum();
    a.reset();
    EXPECT_THAT(message_of([&] { y_.exp(); }).message, HasSubstr("no room for [4]"));
    EXPECT_EQ(message_of([&] { y_.exp(); }).message, "") << "once";
  }
  loss.backward();
  EXPECT_TRUE(at::allclose(x.grad(), x.detach().exp().cos() * x.detach().exp()));
}

TEST_F(PendingTensors, AreLetGoWithTheirGraph) {
  const ScopedHooks scope(waiting());
  Tensor a = y_.exp();
  const auto memory = a.storage().getWeakStorageImpl();
  a.reset();
  EXPECT_TRUE(is_gone(memory));
}

TEST_F(PendingTensors, RegisteredHooksOfOneTensorPackAtOnce) {
  SavedTensor saved(y_);
  saved.register_hooks(waiting());
  EXPECT_THAT(copying_->packed, SizeIs(1));
  EXPECT_TRUE(same_bits(saved.unpack(), y_));
}

TEST_F(PendingTensors, SchedulesThatMakeNoSenseAreErrors) {
  EXPECT_THAT(message_of([] { schedulable(nullptr); }).message, HasSubstr("no hooks"));
  EXPECT_THAT(message_of([] { schedulable(keep(), {.window_tensors = -1}); }).message,
              HasSubstr("window_tensors = -1"));
  EXPECT_THAT(message_of([] { schedulable(keep(), {.depth = -2}); }).message, HasSubstr("depth = -2"));
  EXPECT_THAT(message_of([] { schedulable(keep(), {.window_bytes = 0, .depth = 0}); }).message,
              HasSubstr("neither packs later"));
}

TEST_F(PendingTensors, FiltersAndCompositionsPassTheScheduleOn) {
  const HooksPtr marked = schedulable(keep(), {.depth = 7});
  EXPECT_EQ(min_bytes(1, marked)->schedule()->depth, 7);
  EXPECT_EQ(compose(schedulable(quantise()), marked)->schedule()->depth, 7);
  EXPECT_FALSE(compose(quantise(), marked)->schedule());
  EXPECT_FALSE(compose(marked, quantise())->schedule());
}

}  // namespace
}  // namespace overdrive::hooks
