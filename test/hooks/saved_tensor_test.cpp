// What SavedTensor does beyond LibTorch's SavedVariable: levels, scopes of hooks, nodes of a program's own.
#include "forward_ad/forward_ad.h"
#include "test/hooks/saved_kinds.h"
#include "test/support/typed_node.h"

namespace overdrive::hooks {
namespace {

class SavedTensorOwn : public HooksTest {};

TEST_F(SavedTensorOwn, KeepsTheTangentsOfAllOpenLevels) {
  namespace fwd = forward_ad;
  const Tensor x = at::randn({3}), a = at::randn({3}), b = at::randn({3}), c = at::randn({3});
  fwd::DualLevel outer;
  std::optional<SavedTensor> output, hooked;
  std::vector<Tensor> slopes, others;
  NodePtr owner;
  {
    fwd::DualLevel inner;
    Tensor dual = fwd::make_dual(fwd::make_dual(x, a, outer), b, inner);
    const Tensor y = dual.requires_grad_() * c;
    owner = y.grad_fn();
    ASSERT_NE(owner, nullptr);
    output.emplace(y, SavedAs::kOutput);
    hooked.emplace(y);
    hooked->register_hooks(keep());
    for (const Tensor& back : {output->unpack(*owner), hooked->unpack()}) {
      const fwd::DualParts at_inner = fwd::unpack_dual(back, inner);
      ASSERT_TRUE(at_inner.tangent.defined());
      EXPECT_EQ(back.grad_fn(), owner);
      slopes.push_back(fwd::unpack_dual(at_inner.tangent, outer).primal);
      others.push_back(fwd::unpack_dual(at_inner.primal, outer).tangent);
    }
  }
  // A level that was closed meanwhile is left out; the others are as they were.
  others.push_back(fwd::unpack_dual(hooked->unpack(), outer).tangent);
  outer.close();
  for (const Tensor& slope : slopes) EXPECT_TRUE(at::allclose(slope, b * c));
  for (const Tensor& other : others) EXPECT_TRUE(at::allclose(other, a * c));
}

TEST_F(SavedTensorOwn, IsGivenToTheHooksOfItsScope) {
  const Tensor y = leaf_of({3}) * 2;
  std::optional<SavedTensor> saved, number;
  {
    const ScopedHooks scope(copying_);
    saved.emplace(y);
    const Tensor wrapped = torch::autograd::make_variable(at::scalar_tensor(2.0));
    wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
    number.emplace(wrapped);
    EXPECT_TRUE(number->unpack().is_same(wrapped));
  }
  EXPECT_TRUE(saved->has_hooks());
  EXPECT_EQ(copying_->saves.size(), 1u);
  const Tensor back = saved->unpack();
  EXPECT_TRUE(at::equal(back, y));
  EXPECT_EQ(back.grad_fn(), y.grad_fn());
  EXPECT_NE(back.data_ptr(), y.data_ptr());
  EXPECT_THAT(
      message_of([&] { saved->register_hooks(keep()); }).message,
      testing::StartsWith("Calling register_hooks on a saved tensor whose hooks have already been set."));
}

TEST_F(SavedTensorOwn, TellsTheHookWhichNodeUnpacksOutsideOfABackwardToo) {
  const Tensor y = leaf_of({3}) * 2;
  SavedTensor saved(y);
  saved.register_hooks(copying_);
  saved.unpack(*y.grad_fn());
  saved.unpack();
  EXPECT_THAT(copying_->nodes, testing::ElementsAre(y.grad_fn()->name(), ""))
      << "nobody said for whom the second time";
}

TEST_F(SavedTensorOwn, WorksInANodeUnderEveryHook) {
  struct Cube : torch::autograd::Node {
    SavedTensor x, y;
    test::variable_list apply(test::variable_list&& g) override {
      return {3 * x.unpack(*this).pow(2) * g[0] + 0 * y.unpack(*this)};
    }
    void release_variables() override {
      x.release();
      y.release();
    }
    std::string name() const override { return "Cube"; }
  };
  for (const HooksPtr& hooks : {HooksPtr(), keep(), HooksPtr(copying_)}) {
    const Tensor leaf = at::full({2}, 2.0).requires_grad_();
    Tensor y;
    {
      const ScopedHooks scope(hooks);
      const Tensor x = leaf * 1;
      auto node = overdrive::test::make_typed_node<Cube>();
      node->set_next_edges(torch::autograd::collect_next_edges(x));
      {
        const c10::NoGradGuard no_grad;
        y = x * x * x;
      }
      impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
      node->x = SavedTensor(x);
      node->y = SavedTensor(y, SavedAs::kOutput);
    }
    y.sum().backward();
    EXPECT_TRUE(at::equal(leaf.grad(), at::full({2}, 12.0)));
    EXPECT_THAT(message_of([&] { y.sum().backward(); }).message, testing::EndsWith("one of Cube."));
  }
}

}  // namespace
}  // namespace overdrive::hooks
