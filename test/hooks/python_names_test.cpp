// register_multi_grad_hook, allow_mutation_on_saved_tensors and save_on_cpu do what they do in PyTorch.
#include "test/hooks/hooks_fixture.h"
#include "test/support/pch.h"

#include <malloc.h>

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// On stock, and on Overdrive.
class MultiGradHookTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) installed_.emplace();
    torch::manual_seed(3);
    a = at::randn({2}).requires_grad_();
    b = at::randn({2}).requires_grad_();
    c = at::randn({2}).requires_grad_();
  }

  std::optional<ScopedInstall> installed_;
  Tensor a, b, c;
};

INSTANTIATE_TEST_SUITE_P(Engine, MultiGradHookTest, testing::Bool(),
                         [](const auto& engine) { return engine.param ? "Overdrive" : "Stock"; });

TEST_P(MultiGradHookTest, IsCalledOnceABackwardWhenAllGradientsAreThere) {
  std::vector<std::vector<Tensor>> calls;
  const Tensor product = a * b;
  overdrive::register_multi_grad_hook({product, c}, [&](const std::vector<Tensor>& gradients) {
    EXPECT_FALSE(a.grad().defined()) << "before a's gradient";
    calls.push_back(gradients);
  });
  const Tensor loss = (product * c).sum();
  loss.backward({}, /*retain_graph=*/true);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(at::equal(calls[0][0], c));
  EXPECT_TRUE(at::equal(calls[0][1], product));
  a.mutable_grad() = Tensor();
  loss.backward();
  EXPECT_EQ(calls.size(), 2u);
}

TEST_P(MultiGradHookTest, WaitsOnlyForGradientsThatThisBackwardMakes) {
  std::vector<std::vector<Tensor>> calls;
  overdrive::register_multi_grad_hook(
      {a, b, c}, [&](const std::vector<Tensor>& gradients) { calls.push_back(gradients); });
  (a * b).sum().backward();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(calls[0][0].defined() && calls[0][1].defined());
  EXPECT_FALSE(calls[0][2].defined()) << "c is not part of the graph";
  torch::autograd::backward({(a * b * c).sum()}, {}, std::nullopt, false, {a, c});
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_TRUE(calls[1][0].defined() && calls[1][2].defined());
  EXPECT_FALSE(calls[1][1].defined()) << "b was not asked for";
}

TEST_P(MultiGradHookTest, OfOneGradientIsCalledForTheFirst) {
  int calls = 0;
  Tensor seen;
  overdrive::register_multi_grad_hook({a, b}, [&](const Tensor& gradient) {
    ++calls;
    seen = gradient;
  });
  (a * 2 + b * 3).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(seen, at::full({2}, 2.0f)) || at::equal(seen, at::full({2}, 3.0f)));
  (b * 3).sum().backward();
  EXPECT_EQ(calls, 2);
}

TEST_P(MultiGradHookTest, RemoveTakesItOffAndTwiceIsNoError) {
  int calls = 0;
  auto handle = overdrive::register_multi_grad_hook({a, b}, [&](const std::vector<Tensor>&) { ++calls; });
  handle.remove();
  handle.remove();
  (a * b).sum().backward();
  EXPECT_EQ(calls, 0);
}

TEST_P(MultiGradHookTest, KeepsNeitherTheGraphNorTheTensorsAlive) {
  const Weak leaf(a.getIntrusivePtr());
  Weak inner = leaf;
  {
    Tensor product = a * b;
    inner = Weak(product.getIntrusivePtr());
    overdrive::register_multi_grad_hook({product, a}, [](const std::vector<Tensor>&) {});
    product.sum().backward();
  }
  EXPECT_TRUE(inner.expired());
  a = Tensor();
  EXPECT_TRUE(leaf.expired());
}

TEST_P(MultiGradHookTest, LetsGradientsGoWithABackwardThatFails) {
  std::optional<Weak> arrived;
  std::vector<std::vector<Tensor>> calls;
  bool fails = true;
  b.register_hook([&](const Tensor&) { TORCH_CHECK(!fails, "mine"); });
  overdrive::register_multi_grad_hook(
      {a, b}, [&](const std::vector<Tensor>& gradients) { calls.push_back(gradients); });
  a.register_hook([&](const Tensor& gradient) { arrived.emplace(gradient.getIntrusivePtr()); });
  const auto backward = [&] {
    const Tensor earlier = (b * 3).sin();
    (earlier + a * 2).sum().backward();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(backward(), c10::Error);
    a.mutable_grad() = Tensor();
    ASSERT_TRUE(arrived.has_value()) << "a's gradient comes first";
    EXPECT_TRUE(arrived->expired());
  }
  EXPECT_TRUE(calls.empty());
  fails = false;
  backward();
  EXPECT_EQ(calls.size(), 1u);
}

TEST_P(MultiGradHookTest, KeepsNothingOfTheBackwardsThatAreOver) {
  overdrive::register_multi_grad_hook({a, b}, [](const Tensor&) {});
  const auto backwards = [&](int count) {
    for (int i = 0; i < count; ++i) (a * b).sum().backward();
    return mallinfo2().uordblks;
  };
  const size_t before = backwards(100);
  EXPECT_LT(backwards(4000), before + 40000);
}

using PythonScopes = HooksTest;

TEST_F(PythonScopes, AllowMutationComputesWithTheValuesAtTheSave) {
  const Tensor a = at::randn({3}).requires_grad_(), b = at::randn({3});
  Tensor kept = b.clone(), changing = b.clone(), again;
  {
    const auto scope = overdrive::allow_mutation_on_saved_tensors();
    Tensor y = a * changing;  // saves `changing`
    changing.fill_(100);
    again = a * changing;  // and saves it again, with other values
    changing.fill_(7);
    Tensor sigmoid = y.sigmoid();
    Tensor result = sigmoid * 1;
    sigmoid.zero_();  // an output that its node saved
    (result.sum() + again.sum()).backward();
  }
  const Tensor plain = a.detach().clone().requires_grad_();
  ((plain * kept).sigmoid().sum() + (plain * at::full({3}, 100.0f)).sum()).backward();
  EXPECT_TRUE(at::equal(a.grad(), plain.grad()));
}

TEST_F(PythonScopes, AllowMutationHoldsForParameters) {
  const Tensor w = leaf_of({3}), before = w.detach().clone(), x = leaf_of({3});
  const auto scope = overdrive::allow_mutation_on_saved_tensors();
  const Tensor y = (x * w).sum();
  {
    const at::NoGradGuard no_grad;
    w.add_(5);
  }
  y.backward();
  EXPECT_TRUE(at::equal(x.grad(), before));
}

TEST_F(PythonScopes, WithoutTheScopeTheChangeIsTheUsualError) {
  const Tensor a = leaf_of({3});
  Tensor b = at::ones({3});
  const Tensor y = (a * b).sum();
  b.fill_(2);
  EXPECT_THAT(message_of([&] { y.backward(); }).message, HasSubstr("modified by an inplace operation"));
}

TEST_F(PythonScopes, SaveOnCpuLeavesTensorsOfTheCpuAlone) {
  const Tensor x = leaf_of({64});
  for (const bool pin : {false, true}) {
    x.mutable_grad() = Tensor();
    {
      const auto scope = overdrive::save_on_cpu(pin);
      EXPECT_EQ(active_hooks()->name(), "save_on_cpu");
      x.exp().sin().sum().backward();
    }
    EXPECT_TRUE(at::equal(x.grad(), x.detach().exp().cos() * x.detach().exp()));
  }
}

TEST_F(PythonScopes, PackersInTurnFollowTheData) {
  std::vector<std::string> order;
  const auto noting = [&](const std::string& name) {
    return make_hooks(
        [&order, name](const Tensor& t, const SaveInfo&) {
          order.push_back(name);
          return Packed::of(t * 2);
        },
        [](Packed& packed, const UnpackInfo&) { return packed.tensors[0] / 2; }, {.name = name});
  };
  const Tensor x = leaf_of({64});
  {
    const overdrive::SavedTensorHooksGuard scope(in_turn({noting("first"), noting("second"), noting("third")}),
                                                 {.skip_parameters = false});
    x.square().sum().backward();
  }
  EXPECT_EQ(order, (std::vector<std::string>{"first", "second", "third"}));
  EXPECT_TRUE(at::equal(x.grad(), 2 * x.detach()));
}

}  // namespace
}  // namespace overdrive::hooks
