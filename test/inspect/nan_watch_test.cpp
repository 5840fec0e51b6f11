// The first node that makes a NaN or an infinity out of finite gradients.
#include "inspect/nan/nan_watch.h"

#include "inspect/kernels/value_range.h"
#include "inspect/nan/tensor_range.h"
#include "test/support/contract.h"

#include <limits>

namespace overdrive::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NanWatching : public ContractBase {
 protected:
  void SetUp() override {
    ContractBase::SetUp();
    install();
  }
};

TEST_F(NanWatching, FindsNothingInAFiniteBackward) {
  const at::Tensor x = at::rand({64, 64}).requires_grad_();
  const NanWatch watch;
  (x.mm(x).sin() * x.t()).sum().backward();
  EXPECT_FALSE(watch.first().has_value());
}

TEST_F(NanWatching, NamesTheNodeThatDividesByZeroAndItsInputs) {
  // {x} --> {sqrt} --> {mul 3} --> {sum}: the derivative of sqrt at 0 is infinite
  const at::Tensor x = at::zeros({5}).requires_grad_();
  const at::Tensor y = (x.sqrt() * 3).sum();
  const NanWatch watch;
  y.backward();
  ASSERT_TRUE(watch.first().has_value());
  const NanReport report = *watch.first();
  EXPECT_EQ(report.node, "SqrtBackward0");
  EXPECT_EQ(report.output, 0);
  ASSERT_EQ(report.inputs.size(), 1u);
  EXPECT_TRUE(report.inputs[0].known);
  EXPECT_EQ(report.inputs[0].least, 3);
  EXPECT_EQ(report.inputs[0].most, 3);
  EXPECT_FALSE(report.saved_not_finite);
  EXPECT_THAT(report.path, testing::MatchesRegex("SumBackward0 #.* > MulBackward1 #.* > SqrtBackward0 #.*"));
  EXPECT_THAT(report.text(), testing::HasSubstr("input 0 from 3 to 3"));
}

TEST_F(NanWatching, TellsThatTheForwardHadMadeTheNan) {
  const at::Tensor x = at::full({5}, -1.0).requires_grad_();
  const at::Tensor y = x.sqrt().sum();
  const NanWatch watch;
  y.backward();
  ASSERT_TRUE(watch.first().has_value());
  EXPECT_EQ(watch.first()->node, "SqrtBackward0");
  EXPECT_TRUE(watch.first()->saved_not_finite);
}

TEST_F(NanWatching, BlamesASumThatOverflows) {
  const at::Tensor x = at::ones({3}).requires_grad_();
  const at::Tensor a = x.sin();
  const at::Tensor y = (a * 3e38 + a * 3e38).sum();
  const NanWatch watch;
  y.backward();
  ASSERT_TRUE(watch.first().has_value());
  EXPECT_EQ(watch.first()->node, "SinBackward0");
  EXPECT_TRUE(watch.first()->by_sum);
}

TEST_F(NanWatching, BlamesNoNodeForTheCallersGradient) {
  const at::Tensor x = at::ones({3}).requires_grad_();
  for (const bool several : {false, true}) {
    const NanWatch watch;
    variable_list roots = {x.sin()}, grads = {at::full({3}, kNan)};
    if (several) {
      roots.push_back(x.cos());
      grads.push_back(at::ones({3}));
    }
    torch::autograd::backward(roots, grads);
    ASSERT_TRUE(watch.first().has_value());
    EXPECT_EQ(watch.first()->node, "");
  }
}

TEST_F(NanWatching, KeepsTheFirstOfSeveralBackwards) {
  const NanWatch watch;
  at::zeros({1}).requires_grad_().sqrt().backward();
  at::zeros({1}).requires_grad_().log().backward();
  EXPECT_EQ(watch.first()->node, "SqrtBackward0");
}

TEST_F(NanWatching, LeavesTheBitsAndTheStealingAsTheyAre) {
  const at::Tensor x = at::rand({8, 8}).requires_grad_();
  const auto gradient = [&] {
    x.mutable_grad() = at::Tensor();
    (x.mm(x).relu() + x).sum().backward();
    return x.grad();
  };
  const at::Tensor plain = gradient();
  const NanWatch watch;
  const at::Tensor watched = gradient();
  EXPECT_TRUE(at::equal(plain, watched));
  EXPECT_EQ(plain.strides(), watched.strides());
}

TEST_F(NanWatching, WarnsOnceWhereTheOptionAsks) {
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
    std::vector<std::string> texts;
  } handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  engine::Options options;
  options.nan = engine::Nan::kFirst;
  install(options);
  for (int i = 0; i < 2; ++i) at::zeros({1}).requires_grad_().sqrt().backward();
  install(engine::Options());
  ASSERT_EQ(handler.texts.size(), 1u);
  EXPECT_THAT(handler.texts[0], testing::HasSubstr("Node SqrtBackward0"));
}

TEST(ValueRange, SeesEveryNumberOfEveryLength) {
  for (size_t count = 1; count < 70; ++count) {
    for (size_t place = 0; place < count; ++place) {
      std::vector<float> values(count, 1.5f);
      EXPECT_TRUE(inspect::range_of(values.data(), count).finite);
      for (const float bad : {kNan, -kNan, kInf, -kInf}) {
        values[place] = bad;
        EXPECT_FALSE(inspect::range_of(values.data(), count).finite);
      }
      values[place] = -std::numeric_limits<float>::max();
      const auto range = inspect::range_of(values.data(), count);
      EXPECT_TRUE(range.finite);
      EXPECT_EQ(range.least, -std::numeric_limits<float>::max());
      EXPECT_EQ(range.most, count == 1 ? range.least : 1.5);
    }
  }
}

TEST(ValueRange, OfATensorFollowsItsStrides) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    const at::Tensor whole = at::ones({4, 6, 5}, type);
    whole.select(1, 3).fill_(std::numeric_limits<double>::infinity());
    EXPECT_FALSE(inspect::range_of(whole).finite) << type;
    EXPECT_FALSE(inspect::range_of(whole.transpose(0, 2)).finite) << type;
    EXPECT_TRUE(inspect::range_of(whole.slice(1, 0, 3)).finite) << type;
    EXPECT_FALSE(inspect::range_of(whole.slice(1, 0, 6, 3)).finite) << type;
    EXPECT_TRUE(inspect::range_of(whole.slice(1, 0, 6, 2)).finite) << type;
    EXPECT_FALSE(inspect::range_of(whole.select(1, 3).select(0, 0).select(0, 0).expand({1000})).finite) << type;
  }
  EXPECT_TRUE(inspect::range_of(at::Tensor()).finite);
  EXPECT_TRUE(inspect::range_of(at::ones({3}, at::kLong)).finite);
  EXPECT_TRUE(inspect::range_of(at::ones({0})).finite);
}

}  // namespace
}  // namespace overdrive::test
