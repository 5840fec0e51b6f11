// Every driver in surroundings that change what operators and the engine do, beside a plain
// call of the same.
#include "engine/engine.h"
#include "test/forward_ad/forward_ad_fixture.h"

#include <ATen/autocast_mode.h>

#include <future>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;

class Surroundings : public ForwardAdTest {
 protected:
  // LibTorch picks other backward formulas for these operators when grad mode is off: fused
  // ones without a forward formula, or ones with a factorisation as if it were constant.
  Tensor f(const Tensor& x) const {
    Tensor hidden = at::silu(x.matmul(weight_)) + at::group_norm(at::mish(x), 1);
    return hidden.square().sum() * at::det(x.matmul(x.t()) + at::eye(3, x.options()));
  }

  Tensors all_drivers(const Tensor& x, const Tensor& v) const {
    auto number = [this](const Tensor& t) { return f(t); };
    auto list = [this](const Tensor& t) { return at::silu(t.matmul(weight_)).softmax(1); };
    auto [value, slope] = jvp(number, x, v);
    auto [again, pullback] = vjp(list, x);
    auto forward = hvp(number, x, v), reverse = hvp(number, x, v, HvpMode::kReverseOverReverse);
    return {value,
            slope,
            again,
            pullback(v),
            forward.gradient,
            forward.product,
            reverse.product,
            jacfwd(list, x),
            jacrev(list, x),
            hessian(number, x),
            jvp([&](const Tensor& t) { return hvp(number, t, v).product; }, x, v).tangent};
  }

  void expect_the_same(const Tensors& got) const {
    Tensors want = all_drivers(x_, v_);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(close(got[i].detach(), want[i].detach(), 1e-10)) << i;
  }

  Tensor weight_ = random({3, 3}), x_ = random({3, 3}), v_ = random({3, 3});
};

TEST_F(Surroundings, WithoutGradMode) {
  Tensors got;
  {
    c10::NoGradGuard no_grad;
    got = all_drivers(x_, v_);
    EXPECT_FALSE(c10::GradMode::is_enabled());
  }
  expect_the_same(got);
}

// Nothing of the graph that backward formulas saw is left on the results.
TEST_F(Surroundings, WithoutGradModeNothingIsRecorded) {
  weight_.set_requires_grad(true);
  Tensors got;
  {
    c10::NoGradGuard no_grad;
    got = all_drivers(x_, v_);
  }
  for (size_t i = 0; i < got.size(); ++i) EXPECT_FALSE(got[i].requires_grad()) << i;
  expect_the_same(got);
}

TEST_F(Surroundings, InInferenceMode) {
  Tensors got;
  {
    c10::InferenceMode inference;
    got = all_drivers(x_.clone(), v_.clone());
    EXPECT_TRUE(c10::InferenceMode::is_enabled());
  }
  for (Tensor& tensor : got) tensor = tensor.clone();
  expect_the_same(got);
}

TEST_F(Surroundings, UnderAutocast) {
  at::autocast::set_autocast_enabled(at::kCPU, true);  // for float; double is left alone
  Tensors got = all_drivers(x_, v_);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  expect_the_same(got);
}

TEST_F(Surroundings, OnAnotherThread) {
  expect_the_same(std::async(std::launch::async, [&] { return all_drivers(x_, v_); }).get());
}

TEST_F(Surroundings, InABackwardHook) {
  for (bool ours : {false, true}) {
    std::optional<engine::ScopedInstall> overdrive;
    if (ours) overdrive.emplace();
    for (bool create_graph : {false, true}) {
      Tensor leaf = random({2}).set_requires_grad(true), y = leaf * 2;
      Tensors got;
      y.register_hook([&](const Tensor&) { got = all_drivers(x_, v_); });
      y.sum().backward({}, /*retain_graph=*/true, create_graph);
      leaf.mutable_grad() = Tensor();
      expect_the_same(got);
    }
  }
}

TEST_F(Surroundings, WithInputsThatHaveGradients) {
  Tensor x = x_.clone().set_requires_grad(true), v = v_.clone().set_requires_grad(true);
  (x * v).sum().backward({}, /*retain_graph=*/true);
  Tensor before = x.grad().clone();
  Tensors got = all_drivers(x, v);
  EXPECT_TRUE(at::equal(x.grad(), before)) << "a driver gives gradients, it does not accumulate them";
  expect_the_same(got);
  // And they can be differentiated: the product along v is linear in v.
  Tensor along = torch::autograd::grad({got[5]}, {v}, {v_})[0];
  EXPECT_TRUE(close(along, got[5].detach(), 1e-10));
}

}  // namespace
}  // namespace overdrive::forward_ad
