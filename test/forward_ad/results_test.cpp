// Results of a function that have no derivative.
#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;

using Results = ForwardAdTest;

TEST_F(Results, OfWholeNumbersHaveAJacobianOfZeros) {
  auto f = [](const Tensor& x) { return Tensors{x.argmax(), x * x, x > 0}; };
  Tensor x = random({3});
  for (bool vectorize : {true, false}) {
    Tensors forward = jacfwd(f, x, {.vectorize = vectorize}), reverse = jacrev(f, x, {.vectorize = vectorize});
    for (const Tensors& rows : {forward, reverse}) {
      EXPECT_TRUE(at::equal(rows[0], at::zeros({3}, at::kDouble)));
      EXPECT_TRUE(close(rows[1], at::diag(2 * x)));
      EXPECT_TRUE(at::equal(rows[2], at::zeros({3, 3}, at::kDouble)));
    }
  }
  auto whole = [](const Tensor& t) { return t.argmax(); };
  EXPECT_TRUE(at::equal(jacrev(whole, x), at::zeros({3}, at::kDouble)));
}

TEST_F(Results, OnTheSideMayBeMissing) {
  auto f = [](const Tensor& x) { return with_aux((x * x).sum(), {Tensor(), x}); };
  Tensor x = random({3});
  auto is_passed = [&](const Tensors& aux) { return !aux[0].defined() && close(aux[1], x); };
  auto all_pass = [&] {
    return is_passed(jvp(f, x, x).aux) && is_passed(vjp(f, x).aux) && is_passed(jacfwd(f, x).aux) &&
           is_passed(jacrev(f, x).aux) && is_passed(hvp(f, x, x).aux) && is_passed(hessian(f, x).aux);
  };
  EXPECT_TRUE(all_pass());
  c10::NoGradGuard no_grad;
  EXPECT_TRUE(all_pass());
}

}  // namespace
}  // namespace overdrive::forward_ad
