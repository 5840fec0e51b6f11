// A graph that was made under a hook may be run anywhere, any number of times, or never. Typed over hooks.
#include "test/hooks/hooks_fixture.h"
#include "test/support/gate.h"

namespace overdrive::hooks {
namespace {

struct WithKeep {
  static HooksPtr make() { return keep(); }
};
struct WithCopies {
  static HooksPtr make() { return std::make_shared<CopyingHooks>(); }
};
// Packs late and unpacks early, as much as it can.
struct WithSchedule {
  static HooksPtr make() { return schedulable(std::make_shared<CopyingHooks>(), {.depth = 10}); }
};
struct WithSmallWindow {
  static HooksPtr make() {
    return schedulable(std::make_shared<CopyingHooks>(), {.window_tensors = 1, .depth = 10});
  }
};

template <typename Kind>
class GraphLife : public HooksTest {
 protected:
  struct Built {
    Tensor x, loss;
  };
  // Inputs, outputs, views, an in-place op and one tensor saved by several nodes.
  Built build(const HooksPtr& hooks) {
    torch::manual_seed(5);
    Built built{.x = leaf_of({4, 4}), .loss = {}};
    const ScopedHooks scope(hooks);
    Tensor y = built.x * 2;
    Tensor z = y.exp() + (y * y.t()).sin();
    z.narrow(0, 0, 2).mul_(y.narrow(0, 1, 2));
    built.loss = (z.matmul(y).tanh() * y).sum();
    return built;
  }
  static Tensor gradient(const Built& built) {
    built.loss.backward();
    return built.x.grad();
  }
  Tensor expected() { return gradient(build(nullptr)); }
};
using AnyHooks = testing::Types<WithKeep, WithCopies, WithSchedule, WithSmallWindow>;
TYPED_TEST_SUITE(GraphLife, AnyHooks);

TYPED_TEST(GraphLife, RunsUnderNone) {
  EXPECT_TRUE(same_bits(this->gradient(this->build(TypeParam::make())), this->expected()));
}

TYPED_TEST(GraphLife, RunsUnderOthers) {
  const auto built = this->build(TypeParam::make());
  const ScopedHooks scope(std::make_shared<CopyingHooks>());
  EXPECT_TRUE(same_bits(this->gradient(built), this->expected()));
}

TYPED_TEST(GraphLife, RunsOnAnotherThreadAfterTheScopeIsGone) {
  const auto built = this->build(TypeParam::make());
  std::thread([&] { built.loss.backward(); }).join();
  EXPECT_TRUE(same_bits(built.x.grad(), this->expected()));
}

TYPED_TEST(GraphLife, RunsTwice) {
  const auto built = this->build(TypeParam::make());
  built.loss.backward({}, /*retain_graph=*/true);
  const Tensor once = built.x.grad().clone();
  built.x.mutable_grad().reset();
  built.loss.backward();
  EXPECT_TRUE(same_bits(once, this->expected()));
  EXPECT_TRUE(same_bits(built.x.grad(), once));
}

TYPED_TEST(GraphLife, RunsOnTwoThreadsAtOnce) {
  const auto built = this->build(TypeParam::make());
  std::vector<Tensor> results(2);
  test::on_threads(2, [&](int i) {
    results[static_cast<size_t>(i)] =
        torch::autograd::grad({built.loss}, {built.x}, {}, /*retain_graph=*/true)[0];
  });
  const Tensor expected = this->expected();
  for (const Tensor& result : results) EXPECT_TRUE(same_bits(result, expected));
}

TYPED_TEST(GraphLife, RunsWithCreateGraphAndAgain) {
  const auto second = [&](const HooksPtr& hooks) {
    const auto built = this->build(hooks);
    const ScopedHooks scope(hooks);
    const Tensor first = torch::autograd::grad({built.loss}, {built.x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {built.x})[0];
  };
  EXPECT_TRUE(same_bits(second(TypeParam::make()), second(nullptr)));
}

TYPED_TEST(GraphLife, RunsOnStock) {
  const auto built = this->build(TypeParam::make());
  const Tensor expected = this->expected();
  uninstall();
  EXPECT_TRUE(same_bits(this->gradient(built), expected));
  install();
}

TYPED_TEST(GraphLife, NeverRun) {
  c10::weak_intrusive_ptr<c10::TensorImpl> loss(this->build(TypeParam::make()).loss.getIntrusivePtr());
  base::WeakNodePtr node{base::NodePtr()};
  std::weak_ptr<SavedTensorHooks> hooks;
  {
    const HooksPtr made = TypeParam::make();
    hooks = made;
    node = this->build(made).loss.grad_fn();
  }
  EXPECT_TRUE(loss.expired());
  EXPECT_TRUE(node.expired()) << "the graph owns itself";
  EXPECT_TRUE(hooks.expired()) << "somebody still has the hooks";
}

class GraphInInferenceMode : public HooksTest {};

// Found by the fuzzer: what a hook made there was an inference tensor, which took no version counter.
TEST_F(GraphInInferenceMode, UnpacksOrdinaryTensors) {
  struct Infers : torch::autograd::Function<Infers> {
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a) {
      context->save_for_backward({a, a.narrow(0, 0, 2)});
      return a.sum();
    }
    static test::variable_list backward(torch::autograd::AutogradContext* context, test::variable_list grads) {
      test::variable_list saved;
      {
        const c10::InferenceMode inference;
        saved = context->get_saved_variables();
        EXPECT_TRUE(c10::InferenceMode::is_enabled());
      }
      EXPECT_FALSE(saved[0].is_inference() || saved[1].is_inference());
      return {grads[0] * saved[0] + saved[1].sum()};
    }
  };
  const auto copies = make_hooks(
      [](const Tensor& tensor, const SaveInfo&) {
        return Packed{{tensor.clone()}, {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0].clone(); }, {.lossless = true});
  for (const bool share : {true, false}) {
    for (const HooksPtr& hooks : {HooksPtr(copies), schedulable(copies), keep()}) {
      const Tensor x = leaf_of({3});
      Tensor loss;
      {
        const ScopedHooks scope(hooks, {.skip_parameters = false, .share = share});
        loss = Infers::apply(x);
      }
      loss.backward();
      EXPECT_TRUE(at::equal(x.grad(), x.detach() + x.detach().narrow(0, 0, 2).sum()));
    }
  }
}

}  // namespace
}  // namespace overdrive::hooks
