// Backwards over side streams: whoever uses a gradient afterwards, a leaf's, a captured one or in a callback,
// finds it ready on the streams that it has.
#include "test/support/caught.h"
#include "test/support/fake/device_contract.h"

namespace {

using namespace overdrive;
using torch::Tensor;
namespace fake = test::fake;

OVERDRIVE_DEVICE_CONTRACT(Streams);

TYPED_TEST(Streams, ALeafsGradientMayBeUsedOnTheCallersStream) {
  // forward on stream 2; the caller's stream is 1 when it calls backward, and it reads the gradient there
  const Tensor x = test::device_leaf(1);
  Tensor y;
  {
    fake::wait_for(fake::stream(1, 2), fake::stream(1, 0));
    const c10::StreamGuard guard(fake::stream(1, 2));
    y = (x * 3).sum();
  }
  fake::wait_for(fake::stream(1, 1), fake::stream(1, 2));
  const c10::StreamGuard guard(fake::stream(1, 1));
  y.backward();
  const Tensor use = x.grad() * 2;
  EXPECT_TRUE(torch::equal(use.cpu(), torch::full({2}, 6.0)));
}

TYPED_TEST(Streams, ACapturedGradientToo) {
  const Tensor x = test::device_leaf(1);
  Tensor y;
  {
    fake::wait_for(fake::stream(1, 2), fake::stream(1, 0));
    const c10::StreamGuard guard(fake::stream(1, 2));
    y = (x * 3).exp();
  }
  fake::wait_for(fake::stream(1, 0), fake::stream(1, 2));
  const Tensor g = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_TRUE(torch::equal((g * 2).cpu(), torch::full({2}, 3.0).exp() * 6));
}

TYPED_TEST(Streams, TwoSideStreamsJoin) {
  const Tensor x = test::device_leaf(2);
  const auto branch = [&](int id, double factor) {
    fake::wait_for(fake::stream(2, id), fake::stream(2, 0));
    Tensor out;
    {
      const c10::StreamGuard guard(fake::stream(2, id));
      out = (x * factor).exp();
    }
    fake::wait_for(fake::stream(2, 0), fake::stream(2, id));
    return out;
  };
  (branch(1, 2) + branch(2, 3)).sum().backward();
  const Tensor wanted = torch::full({2}, 2.0).exp() * 2 + torch::full({2}, 3.0).exp() * 3;
  EXPECT_TRUE(torch::allclose(x.grad().cpu(), wanted));
}

TYPED_TEST(Streams, CallbacksRunOnTheCallersThreadAndStreams) {
  const Tensor x = test::device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  const auto here = std::this_thread::get_id();
  std::thread::id there;
  std::vector<int64_t> streams;
  Tensor doubled;
  y.register_hook([&](const Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([&] {
      there = std::this_thread::get_id();
      for (const int device : {0, 1}) streams.push_back(fake::current_stream(device).id());
      doubled = x.grad() * 2;
    });
  });
  const Tensor loss = y.sum();
  fake::wait_for(fake::stream(0, 3), fake::stream(0, 0));
  fake::wait_for(fake::stream(1, 2), fake::stream(1, 0));
  {
    const c10::MultiStreamGuard guard(std::vector<c10::Stream>{fake::stream(0, 3), fake::stream(1, 2)});
    loss.backward();
    EXPECT_TRUE(torch::equal(doubled.cpu(), torch::full({2}, 4.0)));
  }
  EXPECT_EQ(streams, (std::vector<int64_t>{3, 2}));
  // Stock may run them on the thread that happened to finish last.
  if (TypeParam::kOverdrive) {
    EXPECT_EQ(there, here);
  }
}

TYPED_TEST(Streams, WhatANodeLeavesCurrentTheCallerDoesNotSee) {
  const Tensor x = test::device_leaf(0);
  const Tensor y = x * 2;
  y.register_hook([](const Tensor&) {
    c10::impl::getDeviceGuardImpl(fake::kType)->setDevice(fake::device(3));
    // On stock's thread it would stay for the tests that follow.
    if (TypeParam::kOverdrive) c10::impl::getDeviceGuardImpl(fake::kType)->exchangeStream(fake::stream(2, 1));
  });
  int device_in_next = -1;
  x.register_hook([&](const Tensor&) { device_in_next = fake::current_device(); });
  y.sum().backward();
  EXPECT_EQ(device_in_next, 0);
  EXPECT_EQ(fake::current_device(), 0);
  EXPECT_EQ(fake::current_stream(2).id(), 0);
}

// A node of the CPU has no stream whose guard would put the device back, so on stock the device stays.
//   {x} --*2--> {y} --to 1--> loss
TYPED_TEST(Streams, ADeviceThatANodeOfTheCpuLeavesCurrentStaysOnStockAlone) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  const Tensor y = x * 2;
  const auto* const guard = c10::impl::getDeviceGuardImpl(fake::kType);
  y.register_hook([guard](const Tensor&) { guard->setDevice(fake::device(3)); });
  int device_in_next = -1;
  x.register_hook([&](const Tensor&) { device_in_next = fake::current_device(); });
  y.to(fake::device(1)).sum().backward();
  const int device_after = fake::current_device();
  guard->setDevice(fake::device(0));
  const int wanted = TypeParam::kOverdrive ? 0 : 3;
  EXPECT_EQ(device_in_next, wanted);
  EXPECT_EQ(device_after, wanted);
}

}  // namespace
