// What a Function may do with its arguments, and what it may return.
#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using CustomArguments = ForwardAdTest;

// Also returns a whole number, and an expanded tensor, which has one place for its elements.
template <typename Base>
struct ManyOf : Base {
  static variable_list forward(AutogradContext* ctx, const Tensor& x) {
    Tensor largest = x.argmax();
    ctx->mark_non_differentiable({largest});
    ctx->save_for_backward({x});
    return {largest, x.exp(), x.sum().expand({3})};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {ctx->get_saved_variables()[0].exp() * grads[1] + grads[2].sum()};
  }
};
struct Many : ManyOf<CustomJvp<Many>> {
  static Tensors jvp(const Tensors&, const Tensors& outputs, const Tensors& tangents) {
    return {Tensor(), outputs[1] * tangents[0], at::ones({3}, at::kDouble) * tangents[0].sum()};
  }
};
struct ManyByDoubleVjp : ManyOf<DoubleVjp<ManyByDoubleVjp>> {};

TEST_F(CustomArguments, MayComeBackAsResultsWithoutADerivative) {
  Tensor x = random({3}), v = random({3});
  const std::function<Tensor(const Tensor&)> functions[] = {
      [](const Tensor& t) { return Many::apply(t)[1] * Many::apply(t)[2] + t[Many::apply(t)[0]]; },
      [](const Tensor& t) {
        variable_list many = ManyByDoubleVjp::apply(t);
        return many[1] * many[2] + t[many[0]];
      }};
  auto plain = [](const Tensor& t) { return t.exp() * t.sum() + t[t.argmax()]; };
  auto number_of = [](const auto& f) { return [&f](const Tensor& t) { return f(t).square().sum(); }; };
  for (const auto& f : functions) {
    EXPECT_TRUE(close(jvp(f, x, v).tangent, jvp(plain, x, v).tangent));
    EXPECT_TRUE(close(vjp(f, x).pullback(v), vjp(plain, x).pullback(v)));
    EXPECT_TRUE(close(jacfwd(f, x), jacfwd(plain, x)));
    EXPECT_TRUE(close(jacrev(f, x), jacfwd(plain, x)));
    EXPECT_TRUE(close(hvp(number_of(f), x, v).product, hvp(number_of(plain), x, v).product));
    Tensor leaf = x.clone().set_requires_grad(true);
    Tensor along = jvp(number_of(f), leaf, v).tangent;
    EXPECT_TRUE(close(torch::autograd::grad({along}, {leaf})[0], hvp(number_of(plain), x, v).product));
    DualLevel layered;
    EXPECT_TRUE(close(jvp(f, x, v).tangent, jvp(plain, x, v).tangent));
  }
}

struct InPlace : CustomJvp<InPlace> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    ctx->mark_dirty({x});
    return x.mul_(2);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {2 * grads[0]}; }
  static Tensors jvp(const Tensors&, const Tensors&, const Tensors& tangents) { return {2 * tangents[0]}; }
};

// The argument's tangent would stay what it was, and a later use of it would be wrong.
TEST_F(CustomArguments, MustNotBeWrittenIntoInsideALevel) {
  Tensor x = random({3});
  auto f = [](const Tensor& t) {
    Tensor y = t.sin();
    InPlace::apply(y);
    return y * t;
  };
  const std::function<void()> calls[] = {[&] { jvp(f, x, x); }, [&] { vjp(f, x); }, [&] { jacfwd(f, x); },
                                         [&] { nth_derivative(f, x, 2); },
                                         [&] {
                                           DualLevel level;
                                           f(make_dual(x, x, level));
                                         }};
  for (const auto& call : calls) {
    EXPECT_THAT(error_of(call), HasSubstr("InPlace writes into its tensor argument 0 (mark_dirty)"));
    EXPECT_TRUE(nothing_is_open());
  }
  Tensor leaf = x.clone().set_requires_grad(true);
  EXPECT_TRUE(close(torch::autograd::grad({f(leaf).sum()}, {leaf})[0], 2 * (x.cos() * x + x.sin())))
      << "outside of levels it is LibTorch's own";
}

struct OfAList : CustomJvp<OfAList> {
  static Tensor forward(AutogradContext*, const Tensor& x, const std::vector<Tensor>& list) {
    return x * list[0];
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor()}; }
  static Tensors jvp(const Tensors&, const Tensors&, const Tensors& tangents, const std::vector<Tensor>& list) {
    return {tangents[0] * list[0]};
  }
};

TEST_F(CustomArguments, InAListMustNotHaveATangent) {
  Tensor x = random({3}), c = random({3});
  auto constant = [&](const Tensor& t) { return OfAList::apply(t, std::vector<Tensor>{c}); };
  auto itself = [&](const Tensor& t) { return OfAList::apply(c, std::vector<Tensor>{t * 1}); };
  for (bool layered : {false, true}) {
    std::optional<DualLevel> level;
    if (layered) level.emplace();
    EXPECT_TRUE(close(jvp(constant, x, x).tangent, x * c));
    EXPECT_THAT(error_of([&] { jvp(itself, x, x); }), HasSubstr("OfAList: a tensor in a list argument is"));
    EXPECT_THAT(error_of([&] { vjp(itself, x); }), HasSubstr("Pass it as an argument of its own"));
  }
}

}  // namespace
}  // namespace overdrive::forward_ad
