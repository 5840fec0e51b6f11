// Regions on devices: tokens, random numbers, and a region that moves elsewhere.
#include "test/checkpoint/device_fixture.h"

#include <ATen/Context.h>

#include <chrono>
#include <future>
#include <thread>

namespace overdrive::checkpoint {
namespace {

class OnDevices : public DeviceCheckpointTest, public testing::WithParamInterface<Form> {
 protected:
  void SetUp() override {
    DeviceCheckpointTest::SetUp();
    leaf = x.detach().to(test::fake::device(1)).requires_grad_();
  }
  Options options() const { return {.form = GetParam()}; }

  Tensor leaf;
};
INSTANTIATE_TEST_SUITE_P(Form, OnDevices, testing::Values(Form::kEarly, Form::kOnDemand), form_name);

TEST_P(OnDevices, HaveThePlainFunctionsBits) {
  const auto f = [](const Tensor& t) { return t.sin().exp() * t.tanh(); };
  const auto gradient = [&](const Tensor& y) {
    leaf.mutable_grad() = Tensor();
    y.sum().backward();
    return leaf.grad().cpu();
  };
  const Tensor want = gradient(f(leaf));
  EXPECT_TRUE(same_bits(gradient(checkpoint(options(), f, leaf)), want));
}

// Of a generator that is not the CPU's.
TEST_P(OnDevices, DrawTheSameNumbersAgain) {
  test::fake::use_own_generators(true);
  at::Generator generator = at::globalContext().defaultGenerator(leaf.device());
  const auto f = [&](const Tensor& t) {
    const Tensor numbers = at::rand(t.sizes(), generator, at::kFloat).to(t.device());
    return (t * numbers).sin();
  };
  const auto step = [&](bool plain) {
    generator.set_current_seed(5);
    leaf.mutable_grad() = Tensor();
    const Tensor y = plain ? f(leaf) : checkpoint(options(), f, leaf);
    y.sum().backward();
    return Tensors{y.detach().cpu(), leaf.grad().cpu(), at::rand({3}, generator, at::kFloat)};
  };
  const Tensors want = step(true), got = step(false);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

// One region holds the lock of random regions and runs a backward that has nodes for the device's worker. The
// worker waits for the lock, with a region of another thread's backward.
TEST_P(OnDevices, ABackwardInARandomRegionWaitsForNoWorker) {
  std::promise<void> holds_the_lock, worker_comes;
  const Tensor inner = x.detach().clone().requires_grad_();
  const Tensor loss = (inner.to(test::fake::device(1)).sin().cpu() * inner.cos()).sum();
  int runs = 0;
  const auto with_a_backward = [&](const Tensor& t) {
    if (++runs == 2) {
      holds_the_lock.set_value();
      worker_comes.get_future().wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // now the worker waits, or will
    }
    const Tensor gradient = torch::autograd::grad({loss}, {inner}, {}, /*retain_graph=*/true)[0];
    return t * at::rand(t.sizes()) * gradient;
  };
  const auto random = [](const Tensor& t) { return t * at::rand(t.sizes()).to(t.device()); };
  const Tensor other_leaf = at::ones({3}).requires_grad_();
  const Tensor y = checkpoint(options(), with_a_backward, x).sum();
  const Tensor on_device = checkpoint(options(), random, leaf).sum();
  const Tensor both = on_device.cpu() * other_leaf.sum();
  on_device.register_hook([&](const Tensor&) { worker_comes.set_value(); });
  std::thread other([&] {
    holds_the_lock.get_future().wait();
    both.backward();
  });
  y.backward();
  other.join();
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(leaf.grad().defined());
}

TEST_P(OnDevices, AnotherDeviceTheSecondTimeIsAnError) {
  Options named = options();
  named.name = "stem";
  if (GetParam() == Form::kOnDemand) named.early_stop = false;
  int runs = 0;
  const auto f = [&](const Tensor& t) {
    return t.exp().sin().to(++runs == 1 ? test::fake::device(2) : test::fake::device(3));
  };
  const Tensor y = checkpoint(named, f, leaf);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              testing::AllOf(HasSubstr("(stem) gave another output 0"), HasSubstr("on fake:2"),
                             HasSubstr("on fake:3")));
}

using DevicePhonies = DeviceCheckpointTest;
TEST_F(DevicePhonies, AreOnePerDevice) {
  const Tensor first = dependency_token(test::fake::device(0), true),
               second = dependency_token(test::fake::device(1), true);
  EXPECT_FALSE(first.is_same(second));
  EXPECT_TRUE(first.is_same(dependency_token(test::fake::device(0), true)));
  EXPECT_EQ(second.device(), test::fake::device(1));
}

}  // namespace
}  // namespace overdrive::checkpoint
