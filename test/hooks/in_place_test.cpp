// Tensors that are changed in place after they were saved, or while they are packed.
#include "test/hooks/hooks_fixture.h"

namespace overdrive::hooks {
namespace {

class InPlace : public HooksTest {};

TEST_F(InPlace, AChangedTensorIsTheUsualError) {
  for (const bool parameter : {false, true}) {
    const auto run = [&](const HooksPtr& hooks) {
      Tensor x = leaf_of({3}), y = parameter ? x : x * 1;
      Tensor loss;
      {
        const ScopedHooks scope(hooks);
        loss = (y * y.detach().clone()).sum() + y.exp().sum() + y.sin().sum();
      }
      y.detach().add_(1);
      return message_of([&] { loss.backward(); });
    };
    const Caught plain = run(nullptr);
    EXPECT_THAT(plain.message, testing::HasSubstr("modified by an inplace operation"));
    EXPECT_EQ(run(keep()), plain);
    EXPECT_EQ(run(copying_), plain);
  }
}

TEST_F(InPlace, AChangedOutputIsTheUsualError) {
  const auto run = [&](const HooksPtr& hooks) {
    const Tensor x = leaf_of({3});
    const ScopedHooks scope(hooks);
    Tensor y = x.exp();
    y.detach().add_(1);
    return message_of([&] { y.sum().backward(); });
  };
  EXPECT_EQ(run(copying_), run(nullptr));
}

TEST_F(InPlace, TheMessageNamesTheNodeThatMadeTheTensor) {
  const auto run = [&](const HooksPtr& hooks) {
    const Tensor x = leaf_of({3});
    const ScopedHooks scope(hooks);
    Tensor y = x * 1;
    const Tensor loss = y.sin().sum();
    y.add_(1);
    return message_of([&] { loss.backward(); }).message;
  };
  EXPECT_THAT(run(nullptr), testing::HasSubstr("output 0 of Add")) << "stock names who changed it";
  EXPECT_THAT(run(copying_), testing::HasSubstr("output 0 of Mul"));
}

// The view makes itself a node when the one that saves it asks for its inputs' nodes.
TEST_F(InPlace, TheMessageNamesTheNodeOfAViewWhoseBaseHadBeenChanged) {
  const auto run = [&](const HooksPtr& hooks) {
    const Tensor x = leaf_of({4}), y = x * 1;
    Tensor view = y.view({2, 2});
    y.mul_(2);
    const ScopedHooks scope(hooks);
    const Tensor z = view * view;
    view.add_(1);
    return message_of([&] { z.sum().backward(); });
  };
  EXPECT_EQ(run(copying_), run(nullptr));
  EXPECT_EQ(copying_->ops, (std::vector<std::string>{""}));
}

TEST_F(InPlace, TheCheckCanBeLeftOut) {
  Tensor y = leaf_of({3}) * 1, loss;
  {
    const ScopedHooks scope(copying_, {.check_in_place = false});
    loss = y.exp().sum() + y.sin().sum();
  }
  y.detach().add_(1);
  EXPECT_EQ(message_of([&] { loss.backward(); }).message, "");
}

TEST_F(InPlace, APackThatWritesToItsInputIsRefused) {
  const auto hooks = make_hooks(
      [](const Tensor& tensor, const SaveInfo&) {
        tensor.add_(1);
        return Packed{{tensor}, {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0]; }, {.name = "the writer"});
  const Tensor y = leaf_of({3}) * 1;
  const ScopedHooks scope(hooks);
  EXPECT_THAT(message_of([&] { y.exp(); }).message,
              testing::AllOf(testing::StartsWith("A saved tensor pack hook is modifying its input in place."),
                             testing::HasSubstr("the writer")));
}

}  // namespace
}  // namespace overdrive::hooks
