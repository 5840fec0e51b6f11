// Functions that return as their gradient what they saved: the gradient is memory of its own, as without hooks.
#include "test/hooks/hooks_fixture.h"

#include <functional>

namespace overdrive::hooks {
namespace {

struct ReturnsWhatItSaved : torch::autograd::Function<ReturnsWhatItSaved> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& gradient) {
    context->save_for_backward({gradient});
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list) {
    return {context->get_saved_variables()[0], {}};
  }
};

class BorrowedStorage : public HooksTest {
 protected:
  // A copy at the save and another at each unpack.
  const HooksPtr copying_twice_ = make_hooks(
      [](const Tensor& t, const SaveInfo&) {
        return Packed{{t.clone()}, {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0].clone(); }, {.lossless = true});
  const std::vector<HooksPtr> all_{nullptr,
                                   keep(),
                                   copying_,
                                   copying_twice_,
                                   schedulable(copying_),
                                   quantise(),
                                   spill_to_disk({.folder = {}, .min_bytes = 0})};
  static std::string name(const HooksPtr& hooks) { return hooks ? hooks->name() : "no hooks"; }
};

TEST_F(BorrowedStorage, IsNotTakenOverAsAGradient) {
  for (const HooksPtr& hooks : all_) {
    for (const bool with_history : {false, true}) {
      const Tensor x = leaf_of({3, 4}), y = leaf_of({3, 4});
      const Tensor made = at::ones({3, 4}).requires_grad_(with_history) * 1;
      Tensor loss;
      {
        const ScopedHooks scope(hooks);
        loss = ReturnsWhatItSaved::apply(x, made).sum() + ReturnsWhatItSaved::apply(y, made).sum();
      }
      const auto version = made._version();
      loss.backward();
      x.grad().zero_();
      EXPECT_TRUE(at::equal(y.grad(), at::ones({3, 4}))) << name(hooks);
      // Without hooks a leaf does take over memory with a history, or not, as LibTorch has it.
      if (hooks == nullptr) continue;
      EXPECT_TRUE(at::equal(made, at::ones({3, 4}))) << name(hooks);
      EXPECT_EQ(made._version(), version) << name(hooks);
    }
  }
}

TEST_F(BorrowedStorage, OfAParameterIsNotTakenOverEither) {
  const Tensor x = at::ones({3, 4}).requires_grad_();
  Tensor loss;
  {
    const ScopedHooks scope(copying_);
    loss = ReturnsWhatItSaved::apply(x, x).sum();
  }
  loss.backward();
  x.grad().zero_();
  EXPECT_TRUE(at::equal(x, at::ones({3, 4})));
}

TEST_F(BorrowedStorage, MayBeReturnedAgainAndAgain) {
  for (const HooksPtr& hooks : all_) {
    const Tensor x = leaf_of({3, 4}), gradient = at::ones({3, 4});
    Tensor loss;
    {
      const ScopedHooks scope(hooks);
      loss = ReturnsWhatItSaved::apply(x, gradient).sum();
    }
    for (int i = 0; i < 3; ++i) loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(at::equal(x.grad(), at::full({3, 4}, 3.F))) << name(hooks);
  }
}

}  // namespace
}  // namespace overdrive::hooks
