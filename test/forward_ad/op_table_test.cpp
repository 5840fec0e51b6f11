// Every operator of the table, orders 1 to 5, against finite differences of the order
// below and against nested reverse mode.
#include "test/forward_ad/op_table.h"
#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

class OpTable : public ForwardAdTest, public testing::WithParamInterface<OpCase> {
 protected:
  void SetUp() override {
    ForwardAdTest::SetUp();
    const OpCase& op = GetParam();
    point_ = at::rand(op.shape, at::kDouble) * (op.high - op.low) + op.low;
    direction_ = at::rand(op.shape, at::kDouble) - 0.5;
  }

  // The order-th derivative of f along the direction, t away from the point.
  at::Tensor derivative(int order, double t) const {
    auto along = [this](const at::Tensor& s) { return GetParam().f(point_ + s * direction_); };
    return nth_derivative(along, number(t), order);
  }

  at::Tensor point_, direction_;
};

TEST_P(OpTable, AgreesWithFiniteDifferences) {
  constexpr double kStep = 1e-4;
  auto agrees = [&](int order) {
    at::Tensor difference = (derivative(order - 1, kStep) - derivative(order - 1, -kStep)) / (2 * kStep);
    return close(derivative(order, 0), difference, 3e-5);
  };
  const int max_order = GetParam().max_order;
  for (int order = 1; order <= max_order; ++order) EXPECT_TRUE(agrees(order)) << "order " << order;
  if (max_order == 5) return;
  // What is listed as LibTorch's own fault is looked at, so that the list shrinks with the faults.
  try {
    EXPECT_FALSE(agrees(max_order + 1)) << "LibTorch has mended this: " << GetParam().reason;
  } catch (const c10::Error&) {
  }
}

TEST_P(OpTable, AgreesWithNestedReverseMode) {
  if (GetParam().max_reverse_order == 0) GTEST_SKIP() << GetParam().reason;
  at::Tensor t = number(0).set_requires_grad(true);
  at::Tensor value = GetParam().f(point_ + t * direction_);
  at::Tensor weights = at::rand(value.sizes(), at::kDouble);
  at::Tensor nested = (value * weights).sum();
  for (int order = 1; order <= std::min(GetParam().max_order, GetParam().max_reverse_order); ++order) {
    // A derivative that no longer depends on t is followed by zeros.
    nested =
        nested.requires_grad() ? torch::autograd::grad({nested}, {t}, {}, true, true, true)[0] : at::Tensor();
    if (!nested.defined()) nested = number(0);
    EXPECT_TRUE(close((derivative(order, 0) * weights).sum(), nested.detach(), 1e-8)) << "order " << order;
  }
}

// A driver's outermost level has no layer, unless there is another level around it.
TEST_P(OpTable, IsTheSameOnLayersOnly) {
  for (int order = 1; order <= GetParam().max_order; ++order) {
    at::Tensor bare = derivative(order, 0);
    DualLevel layered;
    EXPECT_TRUE(close(derivative(order, 0), bare, 1e-10)) << "order " << order;
  }
}

// Forward over reverse mode: bare, on layers only, and beside a caller who records nothing.
TEST_P(OpTable, HasTheHessianProductOfReverseMode) {
  const OpCase& op = GetParam();
  if (op.max_order == 0 || op.max_reverse_order == 0) GTEST_SKIP() << op.reason;
  at::Tensor weights = at::rand(op.f(point_).sizes(), at::kDouble);
  auto weighted = [&](const at::Tensor& x) { return (op.f(x) * weights).sum(); };
  auto slope = [&](const at::Tensor& x) { return jvp(weighted, x, direction_).tangent; };
  at::Tensor want = op.max_reverse_order >= 2
                        ? hvp(weighted, point_, direction_, HvpMode::kReverseOverReverse).product
                        : jacfwd(slope, point_);
  auto agrees = [&] { return close(hvp(weighted, point_, direction_).product, want, 1e-10); };
  EXPECT_TRUE(agrees());
  c10::NoGradGuard no_grad;
  EXPECT_TRUE(agrees()) << "without grad mode";
  DualLevel layered;
  EXPECT_TRUE(agrees()) << "without grad mode, on layers";
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTable, testing::ValuesIn(op_table()),
                         [](const auto& named) { return named.param.name; });

TEST(OpTableSize, HasAtLeastSixtyOperatorsToOrderFive) {
  auto table = op_table();
  EXPECT_GE(std::count_if(table.begin(), table.end(), [](const OpCase& op) { return op.max_order == 5; }), 60);
  for (const OpCase& op : table) {
    bool limited = op.max_order < 5 || op.max_reverse_order < 5;
    EXPECT_EQ(limited, !op.reason.empty()) << op.name << ": a limit has a reason";
  }
}

}  // namespace
}  // namespace overdrive::forward_ad
