// gradcheck() and gradgradcheck() of right functions and of wrong ones.
#include "engine/engine.h"
#include "test/forward_ad/forward_ad_fixture.h"
#include "test/support/pch.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x^3 with a gradient that is off by `off` in element 2.
struct Cube : DoubleVjp<Cube> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double off) {
    ctx->save_for_backward({x});
    ctx->saved_data["off"] = off;
    return x * x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0];
    Tensor wrong = at::zeros_like(x);
    wrong.view({-1})[2] = ctx->saved_data["off"].toDouble();
    return {grads[0] * (3 * x * x + wrong), Tensor()};
  }
};

class Gradcheck : public ForwardAdTest {
 protected:
  static Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
    return at::randn(sizes, type).requires_grad_();
  }
};

TEST_F(Gradcheck, PassesWhereTheGradientIsRightOnBothEngines) {
  const auto f = [](const Tensors& t) -> Tensors { return {t[0].matmul(t[1]).tanh(), t[0].sin().sum()}; };
  const Tensors inputs{leaf({2, 3}), leaf({3, 2})};
  const GradcheckOptions both{.check_forward_ad = true};
  EXPECT_TRUE(gradcheck(f, inputs, both));
  EXPECT_TRUE(gradgradcheck(f, inputs, {}, both));
  const ScopedInstall installed;
  EXPECT_TRUE(gradcheck(f, inputs, both));
  EXPECT_TRUE(gradgradcheck(f, inputs, {}, both));
  EXPECT_TRUE(gradcheck([](const Tensor& t) { return Cube::apply(t, 0.0); }, inputs[0], both));
  EXPECT_TRUE(gradgradcheck([](const Tensor& t) { return Cube::apply(t, 0.0); }, inputs[0]));
}

TEST_F(Gradcheck, TakesComplexNumbersAsTheirParts) {
  const GradcheckOptions both{.check_forward_ad = true};
  const Tensor z = leaf({2, 2}, at::kComplexDouble);
  EXPECT_TRUE(gradcheck([](const Tensor& t) { return t * t.conj() + t.exp(); }, z, both));
  EXPECT_TRUE(gradcheck([](const Tensor& t) { return at::view_as_real(t.sin()); }, z, both));
  EXPECT_TRUE(gradcheck([](const Tensor& t) { return at::complex(t, t * t); }, leaf({3}), both));
  EXPECT_TRUE(gradgradcheck([](const Tensor& t) { return (t * t.conj()).abs(); }, z));
}

TEST_F(Gradcheck, TakesInputsOfAnyStridesAndInputsThatAreConstant) {
  const Tensor x = random({3, 2}).t().requires_grad_(), constant = random({2, 3});
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return t[0] * t[1]; }, Tensors{x, constant}));
  EXPECT_TRUE(gradcheck([](const Tensor& t) { return t.exp(); }, leaf({0})));
  EXPECT_TRUE(gradcheck([](const Tensors& t) { return t[0] * 2; }, Tensors{leaf({2}), leaf({2})}))
      << "one is unused";
}

TEST_F(Gradcheck, ShowsTheWorstElementWithItsIndexAndBothValues) {
  const Tensor x = at::full({2, 2}, 2.0, at::kDouble).requires_grad_();
  const auto wrong = [](const Tensor& t) { return Cube::apply(t, 0.5); };
  const std::string text = error_of([&] { gradcheck(wrong, x); });
  EXPECT_THAT(text, AllOf(HasSubstr("reverse mode disagrees"), HasSubstr("1 of 16 elements"),
                          HasSubstr("result 0 [1, 0] with regard to input 0 [1, 0]"),
                          HasSubstr("analytic 12.5"), HasSubstr("numeric 12")));
  EXPECT_FALSE(gradcheck(wrong, x, {.raise_exception = false}));
  EXPECT_THAT(error_of([&] { gradcheck(wrong, x, {.check_forward_ad = true, .check_backward_ad = false}); }),
              AllOf(HasSubstr("forward mode disagrees"), HasSubstr("analytic 12.5")));
  const Tensor z = at::full({1}, c10::complex<double>(1, 2), at::kComplexDouble).requires_grad_();
  const auto cut = [](const Tensor& t) { return at::complex(at::real(t), at::imag(t).detach()); };
  EXPECT_THAT(
      error_of([&] { gradcheck(cut, z); }),
      HasSubstr(
          "result 0 [0], imaginary part with regard to input 0 [0], imaginary part: analytic 0, numeric "));
}

// The first derivative is right and the second is not.
struct Square : torch::autograd::Function<Square> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0] * 2 * ctx->get_saved_variables()[0].detach()};
  }
};

TEST_F(Gradcheck, OfGradientsSeesAConstantThatIsNone) {
  const auto square = [](const Tensor& t) { return Square::apply(t); };
  const Tensor x = leaf({2});
  EXPECT_TRUE(gradcheck(square, x));
  EXPECT_THAT(error_of([&] { gradgradcheck(square, x, {at::ones({2}, at::kDouble).requires_grad_()}); }),
              AllOf(HasSubstr("gradgradcheck: reverse mode disagrees"), HasSubstr("analytic 0, numeric ")));
}

TEST_F(Gradcheck, SeesAResultThatLostItsHistory) {
  EXPECT_THAT(error_of([&] { gradcheck([](const Tensor& t) { return t.detach() * 2; }, leaf({2})); }),
              AllOf(HasSubstr("reverse mode disagrees"), HasSubstr("analytic 0, numeric ")));
}

TEST_F(Gradcheck, SeesABackwardThatGivesOtherNumbersEachTime) {
  int calls = 0;
  const auto f = [&](const Tensor& t) {
    Tensor y = t * 2;
    y.register_hook([&](const Tensor& g) { return g * (1 + 1e-9 * ++calls); });
    return y;
  };
  EXPECT_THAT(error_of([&] { gradcheck(f, leaf({2})); }),
              HasSubstr("two backwards through one graph disagree"));
  EXPECT_TRUE(gradcheck(f, leaf({2}), {.nondet_tol = 1e-3}));
}

}  // namespace
}  // namespace overdrive::forward_ad
