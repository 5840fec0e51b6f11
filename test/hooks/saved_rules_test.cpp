// The rules that SavedTensor shares with LibTorch's SavedVariable: typed over both.
#include "test/hooks/saved_kinds.h"
#include "test/support/typed_node.h"

namespace overdrive::hooks {
namespace {

template <typename Saved>
class SavedRules : public HooksTest {};
using Kinds = testing::Types<Stock, Ours>;
struct KindNames {
  template <typename Saved>
  static std::string GetName(int) {
    return Saved::kOurs ? "Ours" : "Stock";
  }
};
TYPED_TEST_SUITE(SavedRules, Kinds, KindNames);

TYPED_TEST(SavedRules, NothingUnpacksToNothing) {
  TypeParam empty, undefined{Tensor()}, nothing{std::nullopt};
  for (TypeParam* saved : {&empty, &undefined, &nothing}) {
    EXPECT_FALSE(saved->unpack(nullptr).defined());
    saved->release();
    EXPECT_FALSE(saved->unpack(nullptr).defined());
  }
}

TYPED_TEST(SavedRules, AnInputIsTheVeryTensor) {
  const Tensor x = leaf_of({3}), y = x * 2, plain = at::ones({3});
  for (const Tensor& tensor : {x, y, plain}) {
    TypeParam saved(tensor);
    EXPECT_TRUE(saved.unpack(nullptr).is_same(tensor));
  }
  TypeParam leaf_output(x, SavedAs::kOutput);
  EXPECT_TRUE(leaf_output.unpack(nullptr).is_same(x));
}

TYPED_TEST(SavedRules, AnOutputHangsOnItsNodeAgain) {
  const Tensor second = leaf_of({2, 3}).unbind()[1];
  TypeParam saved(second, SavedAs::kOutput);
  const Tensor back = saved.unpack(second.grad_fn());
  EXPECT_EQ(back.grad_fn(), second.grad_fn());
  EXPECT_EQ(back.output_nr(), 1);
  EXPECT_EQ(back.data_ptr(), second.data_ptr());
  EXPECT_FALSE(back.is_same(second));
  const auto version = back._version();
  second.detach().add_(1);
  EXPECT_EQ(back._version(), version + 1) << "the version counter is not shared";
}

TYPED_TEST(SavedRules, AnOutputDoesNotKeepItsNode) {
  struct Owner : torch::autograd::Node {
    std::optional<TypeParam> saved;
    std::shared_ptr<int> alive = std::make_shared<int>();
    test::variable_list apply(test::variable_list&&) override { return {}; }
    void release_variables() override {}
  };
  std::weak_ptr<int> alive;
  {
    auto node = overdrive::test::make_typed_node<Owner>();
    alive = node->alive;
    Tensor y = at::ones({2});
    impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
    node->saved.emplace(y, SavedAs::kOutput);
  }
  EXPECT_TRUE(alive.expired());
}

TYPED_TEST(SavedRules, AnInPlaceResultOnAViewHoldsItsHistoryWeakly) {
  Tensor back;
  std::optional<TypeParam> saved;
  {
    Tensor base = leaf_of({4}) * 1;
    Tensor view = base.narrow(0, 0, 2);
    view.exp_();
    saved.emplace(view, SavedAs::kInPlaceOnView);
    EXPECT_EQ(saved->unpack(nullptr).grad_fn(), view.grad_fn());
  }
  // The history is gone with the view: the owner takes its place.
  const NodePtr owner = test::make_node("owner", {});
  EXPECT_EQ(saved->unpack(owner).grad_fn(), owner);
}

TYPED_TEST(SavedRules, InferenceTensorsAreRefusedWithAdvice) {
  Tensor inference;
  {
    const c10::InferenceMode guard;
    inference = at::ones({2});
  }
  EXPECT_THAT(message_of([&] { TypeParam saved(inference); }).message,
              testing::StartsWith("Inference tensors cannot be saved for backward."));
}

TYPED_TEST(SavedRules, MetadataComesBackThroughHooks) {
  const Tensor x = leaf_of({3}), second = leaf_of({2, 3}).unbind()[1], plain = at::ones({3});
  TypeParam leaf(x), inner(second), bare(plain);
  for (TypeParam* saved : {&leaf, &inner, &bare}) saved->register_hooks(std::make_unique<KeepingHook>());
  EXPECT_FALSE(KeepingHook::packed_with_grad);
  EXPECT_TRUE(leaf.unpack(nullptr).requires_grad() && leaf.unpack(nullptr).is_leaf());
  EXPECT_EQ(impl::grad_accumulator(leaf.unpack(nullptr)), impl::grad_accumulator(x));
  EXPECT_EQ(inner.unpack(nullptr).grad_fn(), second.grad_fn());
  EXPECT_EQ(inner.unpack(nullptr).output_nr(), 1);
  EXPECT_FALSE(bare.unpack(nullptr).requires_grad());
  EXPECT_EQ(leaf.unpack(nullptr)._version(), x._version());
}

TYPED_TEST(SavedRules, KeepsATangentOfLibTorchsOwnLevel) {
  const uint64_t level = torch::autograd::forward_ad::enter_dual_level();
  Tensor dual = at::_make_dual(leaf_of({3}), at::full({3}, 5.0), level) * 1;
  TypeParam output(dual, SavedAs::kOutput), hooked(dual);
  hooked.register_hooks(std::make_unique<KeepingHook>());
  const Tensor tangents[] = {output.unpack(dual.grad_fn())._fw_grad(level),
                             hooked.unpack(nullptr)._fw_grad(level)};
  for (const Tensor& tangent : tangents) {
    ASSERT_TRUE(tangent.defined());
    EXPECT_TRUE(at::equal(tangent, at::full({3}, 5.0)));
  }
  torch::autograd::forward_ad::exit_dual_level(level);
  EXPECT_FALSE(output.unpack(dual.grad_fn())._fw_grad(level).defined());
}

}  // namespace
}  // namespace overdrive::hooks
