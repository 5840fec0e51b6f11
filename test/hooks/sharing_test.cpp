// Memory that is saved more than once: packed once, and given back as views of one storage.
#include "test/hooks/hooks_fixture.h"

namespace overdrive::hooks {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using Sizes = std::vector<int64_t>;

// Notes the storage of every tensor that it is given in the backward, and keeps it.
struct Look : torch::autograd::Function<Look> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a, const Tensor& b) {
    context->save_for_backward({a, b});
    return a.abs().sum() + b.abs().sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    seen = context->get_saved_variables();
    return {grads[0].expand_as(seen[0]), grads[0].expand_as(seen[1])};
  }
  static inline torch::autograd::variable_list seen;
};

class Sharing : public HooksTest {
 protected:
  void TearDown() override {
    Look::seen.clear();
    HooksTest::TearDown();
  }
  // Saves both in one node, runs it, and looks whether the values came back.
  void save_and_look(const Tensor& a, const Tensor& b) {
    Tensor loss;
    {
      const ScopedHooks scope(copying_);
      loss = Look::apply(a, b);
    }
    loss.backward();
    EXPECT_TRUE(same_bits(Look::seen[0], a));
    EXPECT_TRUE(same_bits(Look::seen[1], b));
  }
  static bool one_storage() { return Look::seen[0].storage().is_alias_of(Look::seen[1].storage()); }

  const Tensor y_ = leaf_of({4, 6}) * 1;
};

TEST_F(Sharing, OneTensorTwice) {
  save_and_look(y_, y_);
  EXPECT_THAT(copying_->packed, ElementsAre(Sizes{4, 6}));
  EXPECT_TRUE(one_storage());
}

TEST_F(Sharing, AViewAfterItsBase) {
  save_and_look(y_, y_.t());
  EXPECT_THAT(copying_->packed, SizeIs(1));
  EXPECT_TRUE(one_storage());
  save_and_look(y_, y_.narrow(0, 1, 2));
  save_and_look(y_, y_.select(1, 3));
  EXPECT_THAT(copying_->packed, SizeIs(3));
  EXPECT_TRUE(one_storage());
}

TEST_F(Sharing, ABaseAfterItsViewIsPackedBesideIt) {
  save_and_look(y_.narrow(0, 1, 2), y_);
  EXPECT_THAT(copying_->packed, ElementsAre((Sizes{2, 6}), (Sizes{4, 6})));
}

TEST_F(Sharing, ViewsThatOverlapInPartArePackedApart) {
  save_and_look(y_.narrow(0, 0, 3), y_.narrow(0, 1, 3));
  EXPECT_THAT(copying_->packed, ElementsAre((Sizes{3, 6}), (Sizes{3, 6})));
}

// A search through all of them would take a time that grows with their square.
TEST_F(Sharing, OfManyOverlappingWindowsTheLatestAreKnown) {
  constexpr int64_t kWindows = 1000;
  const Tensor base = at::ones({kWindows + 8, 2}), w = at::ones({8, 2}).requires_grad_();
  std::vector<Tensor> alive;
  const ScopedHooks scope(copying_);
  const auto save = [&](int64_t window) { alive.push_back(base.narrow(0, window, 8) * w); };
  for (int64_t window = 0; window < kWindows; ++window) save(window);
  EXPECT_THAT(copying_->packed, SizeIs(kWindows));
  for (int64_t window = kWindows - 50; window < kWindows; ++window) save(window);
  EXPECT_THAT(copying_->packed, SizeIs(kWindows));
  save(0);
  EXPECT_THAT(copying_->packed, SizeIs(kWindows + 1));
}

TEST_F(Sharing, OnlyTheExtentOfWhatIsSaved) {
  save_and_look(y_.narrow(0, 0, 1), y_.narrow(0, 3, 1));
  EXPECT_THAT(copying_->packed, ElementsAre((Sizes{1, 6}), (Sizes{1, 6})));
}

TEST_F(Sharing, RepeatedElementsArePackedOnce) {
  const Tensor wide = y_.select(0, 1).expand({1000, 6});
  save_and_look(wide, wide);
  EXPECT_THAT(copying_->packed, ElementsAre(Sizes{6}));
}

TEST_F(Sharing, RepeatedElementsArePackedOnceWithGapsBetweenThemToo) {
  for (const bool lossless : {true, false}) {
    copying_->is_lossless = lossless;
    copying_->packed.clear();
    const Tensor wide = y_.select(1, 0).expand({5, 4});  // every sixth element of memory, five times
    save_and_look(wide, wide);
    EXPECT_THAT(copying_->packed, ElementsAre(Sizes{1, 4}));
    EXPECT_EQ(Look::seen[0].strides(), wide.strides());
  }
}

// A norm in training mode writes to them and leaves their version alone.
TEST_F(Sharing, RunningStatisticsOfANormAreNotShared) {
  for (const bool lossless : {true, false}) {
    copying_->is_lossless = lossless;
    const auto run = [](const HooksPtr& hooks) {
      torch::manual_seed(3);
      torch::nn::BatchNorm1d norm(4);
      const Tensor x = leaf_of({8, 4}), other = at::randn({8, 4}) * 3 + 1;
      Tensor loss;
      {
        const ScopedHooks scope(hooks);
        loss = norm(other).square().sum();
        norm->eval();
        loss = loss + norm(x).square().sum();
      }
      loss.backward();
      return x.grad();
    };
    EXPECT_TRUE(same_bits(run(copying_), run(nullptr)));
  }
}

TEST_F(Sharing, GapsBetweenElementsAreNotPacked) {
  const Tensor columns = y_.narrow(1, 0, 2);
  save_and_look(columns, columns);
  EXPECT_THAT(copying_->packed, ElementsAre((Sizes{4, 2})));
}

TEST_F(Sharing, AViewOfTheGapsIsPackedBesideThem) {
  save_and_look(y_.narrow(1, 0, 2), y_.narrow(1, 3, 2).narrow(0, 0, 3));
  EXPECT_THAT(copying_->packed, SizeIs(2));
}

TEST_F(Sharing, LossyHooksShareEqualGeometryOnly) {
  copying_->is_lossless = false;
  save_and_look(y_, y_);
  EXPECT_THAT(copying_->packed, SizeIs(1));
  save_and_look(y_, y_.t());
  EXPECT_THAT(copying_->packed, SizeIs(3));
}

TEST_F(Sharing, ConjugatedAndNegatedViewsKeepTheirBits) {
  const Tensor z = at::view_as_complex(at::randn({3, 2})).requires_grad_() * 1;
  save_and_look(z.conj(), z);
  EXPECT_TRUE(Look::seen[0].is_conj());
  EXPECT_FALSE(Look::seen[1].is_conj());
  EXPECT_THAT(copying_->packed, SizeIs(1));
  EXPECT_TRUE(one_storage());
  const Tensor negated = at::imag(z.conj());
  save_and_look(negated, negated);
  EXPECT_TRUE(Look::seen[0].is_neg());
}

TEST_F(Sharing, AViewOfAnotherTypeIsAnotherTensor) {
  const Tensor z = at::view_as_complex(at::randn({3, 2})).requires_grad_() * 1;
  save_and_look(z, at::view_as_real(z));
  EXPECT_THAT(copying_->packed, SizeIs(2));
}

TEST_F(Sharing, CanBeSwitchedOff) {
  Tensor loss;
  {
    const ScopedHooks scope(copying_, {.share = false});
    loss = Look::apply(y_, y_);
  }
  EXPECT_THAT(copying_->packed, SizeIs(2));
  loss.backward();
  EXPECT_FALSE(one_storage());
}

// A freed storage's address, taken by another of the same size: nothing is shared.
TEST_F(Sharing, MemoryThatWasFreedAndUsedAgainIsNotShared) {
  const ScopedHooks scope(copying_);
  std::vector<char> memory(4096 * sizeof(float));
  const auto tensor_there = [&](float value) {
    Tensor t = at::from_blob(memory.data(), {64, 64}, at::kFloat);
    t.fill_(value);
    return t;
  };
  const Tensor one = at::ones({}).requires_grad_();
  Tensor first = tensor_there(2);
  const Tensor product = one * first;  // the graph lives on, and with it what was packed
  const void* data = first.data_ptr();
  first.reset();
  const Tensor second = tensor_there(3);
  ASSERT_EQ(second.data_ptr(), data);
  const Tensor other = one * second;
  EXPECT_THAT(copying_->packed, testing::Contains(Sizes{64, 64}).Times(2));
  (product.mean() + other.mean()).backward();
  EXPECT_EQ(one.grad().item<float>(), 5);
}

TEST_F(Sharing, MemoryChangedInBetweenIsNotShared) {
  const ScopedHooks scope(copying_, {.check_in_place = false});
  const Tensor one = at::ones({}).requires_grad_();
  Tensor t = at::full({2, 4}, 2.0);  // a short row would not be shared at all
  const Tensor before = one * t;
  t.add_(1);
  const Tensor after = one * t;
  EXPECT_THAT(copying_->packed, testing::Contains(Sizes{2, 4}).Times(2));
  (before.mean() + after.mean()).backward();
  EXPECT_EQ(one.grad().item<float>(), 5);
}

// `data()` has a version counter of its own; equal numbers mean nothing.
TEST_F(Sharing, AnotherCountersVersionIsAnotherVersion) {
  const ScopedHooks scope(copying_, {.check_in_place = false});
  const Tensor one = at::ones({}).requires_grad_();
  Tensor t = at::full({2, 4}, 2.0);  // a short row would not be shared at all
  const Tensor before = one * t;
  const int64_t saved_at = t._version();
  t.add_(1);
  const Tensor data = t.variable_data();  // the same memory under a counter that begins at 0
  while (data._version() < saved_at) Tensor(data).add_(0);
  ASSERT_EQ(data._version(), saved_at);
  const Tensor after = one * data;
  (before.mean() + after.mean()).backward();
  EXPECT_EQ(one.grad().item<float>(), 5);
}

TEST_F(Sharing, FindsMemoryAmongMuchOther) {
  const ScopedHooks scope(copying_);
  std::vector<Tensor> tensors, graphs;
  for (int i = 0; i < 300; ++i) tensors.push_back(y_ * i);
  copying_->packed.clear();
  for (int round = 0; round < 2; ++round) {
    for (const Tensor& t : tensors) graphs.push_back(t.sin());  // of which nothing is let go
  }
  EXPECT_THAT(copying_->packed, SizeIs(300));
}

TEST_F(Sharing, ForgetsWhatIsGone) {
  const ScopedHooks scope(copying_);
  for (int i = 0; i < 500; ++i) {
    const Tensor z = y_ * 1;
    z.exp().sum().backward({}, /*retain_graph=*/true);
  }
  EXPECT_THAT(copying_->packed, SizeIs(500));
}

}  // namespace
}  // namespace overdrive::hooks
