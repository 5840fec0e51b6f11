// A region that does something else when it runs again: noticed, and named.
#include "test/checkpoint/checkpoint_fixture.h"

namespace overdrive::checkpoint {
namespace {

OVERDRIVE_BOTH_FORMS(Determinism);

// What runs the second time is another function than the first time.
TEST_P(Determinism, OtherShapesAreAnError) {
  int runs = 0;
  Options named = options();
  named.name = "encoder";
  if (GetParam() == Form::kOnDemand) named.early_stop = false;
  const Tensor y = checkpoint(
      named, [&](const Tensor& t) { return ++runs == 1 ? block(t) : block(t.slice(0, 0, 2)); }, x);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              testing::AllOf(HasSubstr("(encoder)"), HasSubstr("[4, 8]"), HasSubstr("[2, 8]")));
}

TEST_P(Determinism, OtherTypesAreAnError) {
  int runs = 0;
  Options named = options();
  named.name = "encoder";
  if (GetParam() == Form::kOnDemand) named.early_stop = false;
  const auto f = [&](const Tensor& t) {
    return std::pair(block(t), ++runs == 1 ? t * 2 : (t * 2).to(at::kDouble));
  };
  const auto [first, second] = checkpoint(named, f, x);
  const Tensor sum = (first + second).sum();
  EXPECT_THAT(error_of([&] { sum.backward(); }),
              testing::AllOf(HasSubstr("(encoder) gave another output 1"), HasSubstr("Float[4, 8] on cpu"),
                             HasSubstr("Double[4, 8] on cpu")));
}

TEST_P(Determinism, OtherNumbersOfTensorsAreAnError) {
  int runs = 0;
  const auto f = [&](const Tensor& t) { return ++runs == 1 ? Tensors{block(t), t.exp()} : Tensors{block(t)}; };
  const Tensors y = checkpoint(options(), f, x);
  EXPECT_THAT(error_of([&] { (y[0] + y[1]).sum().backward(); }),
              HasSubstr("A region must do the same each time it runs"));
}

TEST_P(Determinism, OtherBitsAreAnErrorWhenAskedFor) {
  const auto run = [&](bool checksum) {
    int runs = 0;
    Options with = options();
    with.checksum = checksum;
    const Tensor y = checkpoint(
        with, [&](const Tensor& t) { return (block(t) * ++runs).exp(); }, x);
    return error_of([&] { y.sum().backward(); });
  };
  EXPECT_EQ(run(false), "(no error)");
  EXPECT_THAT(run(true), HasSubstr("checksum"));
}

// On demand, what the outputs do not show: as many tensors saved, of another type.
TEST(DeterminismOnDemand, OtherSavedTensorsAreAnError) {
  const ScopedInstall installed;
  int runs = 0;
  const Tensor x = at::randn({4, 8}).requires_grad_();
  const auto f = [&](const Tensor& t) {
    const Tensor u = ++runs == 1 ? t * 1 : t.to(at::kDouble);
    return u.exp().to(at::kFloat);
  };
  const Tensor y = checkpoint({.form = Form::kOnDemand, .name = "decoder"}, f, x);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              testing::AllOf(HasSubstr("(decoder) gave another saved tensor 0"),
                             HasSubstr("Float[4, 8] on cpu"), HasSubstr("Double[4, 8] on cpu")));
}

TEST(DeterminismOnDemand, MoreSavedTensorsAreAnErrorWhereTheRunIsNotStopped) {
  const ScopedInstall installed;
  const Tensor x = at::randn({4, 8}).requires_grad_();
  const auto error = [&](bool early_stop) {
    int runs = 0;
    const auto f = [&](const Tensor& t) { return ++runs == 1 ? t.exp() : t.exp().sin(); };
    const Tensor y = checkpoint({.form = Form::kOnDemand, .early_stop = early_stop}, f, x);
    return error_of([&] { y.sum().backward(); });
  };
  EXPECT_EQ(error(true), "(no error)") << "what it saves after the last tensor is not run";
  EXPECT_TRUE(same_bits(x.grad(), x.exp().detach()));
  EXPECT_THAT(error(false), HasSubstr("saved 2 tensors for its backward, the first run 1"));
}

}  // namespace
}  // namespace overdrive::checkpoint
