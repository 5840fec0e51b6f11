// The fake accelerator and its checker, before anything is concluded from them: operators give the CPU's
// bits over the same memory, and a wait that is missing is reported.
#include "test/support/fake/accelerator.h"
#include "test/support/fake/happens_before.h"

namespace {

namespace fake = overdrive::test::fake;
using fake::HappensBefore;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using torch::Tensor;

int place(int) { return 0; }

TEST(HappensBeforeChecker, ReportsAReaderThatDidNotWaitForTheWriter) {
  // stream 0: --write-->        stream 1: --read-->
  HappensBefore checker(2);
  const int memory = place(0);
  checker.kernel(0, "write", {}, {&memory});
  checker.kernel(1, "read", {&memory}, {});
  ASSERT_THAT(checker.violations(), SizeIs(1));
  EXPECT_EQ(checker.violations()[0],
            "read on stream 1 uses what write has written on stream 0 without having waited for it");
}

TEST(HappensBeforeChecker, IsContentWhenTheReaderWaited) {
  HappensBefore checker(2);
  const int memory = place(0);
  checker.kernel(0, "write", {}, {&memory});
  checker.wait(1, checker.record(0));
  checker.kernel(1, "read", {&memory}, {});
  EXPECT_THAT(checker.violations(), IsEmpty());
}

TEST(HappensBeforeChecker, ReportsAnEventThatWasRecordedTooEarly) {
  HappensBefore checker(2);
  const int memory = place(0);
  const auto early = checker.record(0);
  checker.kernel(0, "write", {}, {&memory});
  checker.wait(1, early);
  checker.kernel(1, "read", {&memory}, {});
  EXPECT_THAT(checker.violations(), SizeIs(1));
}

TEST(HappensBeforeChecker, FollowsWaitsThroughAThirdStream) {
  // 0 --write--> 1 --> 2 --read-->
  HappensBefore checker(3);
  const int memory = place(0);
  checker.kernel(0, "write", {}, {&memory});
  checker.wait(1, checker.record(0));
  checker.wait(2, checker.record(1));
  checker.kernel(2, "read", {&memory}, {});
  EXPECT_THAT(checker.violations(), IsEmpty());
}

TEST(HappensBeforeChecker, ReportsAWriterThatDidNotWaitForTheReader) {
  HappensBefore checker(2);
  const int memory = place(0);
  checker.kernel(0, "write", {}, {&memory});
  checker.wait(1, checker.record(0));
  checker.kernel(1, "read", {&memory}, {});
  checker.kernel(0, "overwrite", {}, {&memory});
  ASSERT_THAT(checker.violations(), SizeIs(1));
  EXPECT_THAT(checker.violations()[0], HasSubstr("overwrite on stream 0 uses what read has read on stream 1"));
}

class FakeAccelerator : public testing::Test {
 protected:
  void SetUp() override { fake::clear_violations(); }
  void TearDown() override {
    fake::ignore_waits(false);
    fake::on_kernel(nullptr);
    fake::clear_violations();
  }
};

TEST_F(FakeAccelerator, ComputesWithTheCpusBits) {
  torch::manual_seed(1);
  const Tensor x = torch::randn({4, 5});
  const Tensor w = torch::randn({5, 3});
  const auto compute = [](const Tensor& a, const Tensor& b) {
    return torch::softmax(torch::relu(a.matmul(b)) + a.sum(1, true), 1).t().contiguous();
  };
  const Tensor y = compute(x.to(fake::device(2)), w.to(fake::device(2)));
  EXPECT_EQ(y.device(), fake::device(2));
  EXPECT_TRUE(torch::equal(y.cpu(), compute(x, w)));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FakeAccelerator, SharesMemoryBetweenViews) {
  Tensor x = torch::zeros({2, 3}, fake::options(1));
  Tensor row = x.select(0, 1);
  row.add_(2);
  x.view({6}).narrow(0, 0, 1).fill_(7);
  EXPECT_TRUE(x.is_alias_of(row));
  EXPECT_TRUE(torch::equal(x.cpu(), torch::tensor({{7.f, 0.f, 0.f}, {2.f, 2.f, 2.f}})));
}

TEST_F(FakeAccelerator, SaysOnWhichStreamAKernelWasPut) {
  const Tensor x = torch::ones({2}, fake::options(3));
  std::vector<fake::Kernel> kernels;
  fake::on_kernel([&](const fake::Kernel& kernel) { kernels.push_back(kernel); });
  const c10::StreamGuard guard(fake::stream(3, 2));
  fake::wait_for(fake::stream(3, 2), fake::stream(3, 0));
  const Tensor y = x.exp();
  ASSERT_THAT(kernels, SizeIs(1));
  EXPECT_THAT(kernels[0].op, HasSubstr("aten::exp"));
  EXPECT_EQ(kernels[0].device, 3);
  EXPECT_EQ(kernels[0].stream, 2);
}

TEST_F(FakeAccelerator, ReportsATensorThatIsReadOnAnotherStreamTooEarly) {
  const Tensor x = torch::ones({2}, fake::options(0)) * 3;
  const c10::StreamGuard guard(fake::stream(0, 1));
  const Tensor y = x + 1;
  EXPECT_THAT(fake::violations(), testing::Not(IsEmpty()));
}

TEST_F(FakeAccelerator, ReportsAWaitThatWasLeftOut) {
  fake::ignore_waits(true);
  const Tensor x = torch::ones({2}, fake::options(0)) * 3;
  fake::wait_for(fake::stream(0, 1), fake::stream(0, 0));
  const c10::StreamGuard guard(fake::stream(0, 1));
  const Tensor y = x + 1;
  EXPECT_THAT(fake::violations(), testing::Not(IsEmpty()));
}

TEST_F(FakeAccelerator, OrdersACopyBetweenDevicesOnBoth) {
  const Tensor x = torch::ones({2}, fake::options(0)) * 3;
  const Tensor y = x.to(fake::device(1)) + 1;
  EXPECT_TRUE(torch::equal(y.cpu(), torch::full({2}, 4.f)));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FakeAccelerator, ReportsAStockBackwardWhoseWaitsAreLeftOut) {
  // {x} --exp on stream 1--> --sum on stream 0--> backward
  const auto backward = [] {
    Tensor x = torch::ones({2}, fake::options(0).requires_grad(true));
    Tensor y;
    {
      fake::wait_for(fake::stream(0, 1), fake::stream(0, 0));
      const c10::StreamGuard guard(fake::stream(0, 1));
      y = x.exp();
    }
    fake::wait_for(fake::stream(0, 0), fake::stream(0, 1));
    const Tensor loss = y.sum();
    fake::clear_violations();
    loss.backward();
    return x.grad().cpu();
  };
  backward();
  EXPECT_THAT(fake::violations(), IsEmpty());
  fake::ignore_waits(true);
  backward();
  EXPECT_THAT(fake::violations(), testing::Not(IsEmpty()));
}

}  // namespace
