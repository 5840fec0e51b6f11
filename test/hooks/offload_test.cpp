// offload_to_cpu on an accelerator that does not exist: the bits come back, and no copy, kernel or buffer is
// used before what it needs is done.
#include "test/hooks/fetch_ahead_fixture.h"
#include "test/support/fake/accelerator.h"

#include <c10/core/StreamGuard.h>

#include <set>

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fake = test::fake;

class Offload : public HooksTest {
 protected:
  void SetUp() override {
    HooksTest::SetUp();
    fake::clear_violations();
    fake::reset_calls();
  }
  void TearDown() override {
    EXPECT_THAT(fake::violations(), IsEmpty());
    fake::clear_violations();
    HooksTest::TearDown();
  }
  static HooksPtr all() { return offload_to_cpu({.min_bytes = 0}); }

  static Tensor on_device(at::IntArrayRef sizes, int device = 0) {
    return at::randn(sizes).to(fake::device(device)).detach().requires_grad_();
  }
  // Forward and backward of a few steps on the device's stream `stream`; the last gradient.
  static Tensor train(const HooksPtr& hooks, int device, int stream, int steps = 3) {
    torch::manual_seed(3);
    Tensor x = on_device({8, 8}, device);
    const Tensor w = on_device({8, 8}, device);
    const c10::StreamGuard on(fake::stream(device, stream));
    fake::wait_for(fake::stream(device, stream), fake::stream(device, 0));
    for (int i = 0; i < steps; ++i) {
      Tensor loss;
      {
        const ScopedHooks scope(hooks);
        loss = ((x * w).exp().sin() * w.tanh()).sum();
      }
      loss.backward();
    }
    return w.grad().cpu();
  }
};

TEST_F(Offload, BringsBackTheBitsOnAnyDeviceAndStream) {
  for (const int device : {0, 3}) {
    for (const int stream : {0, 1, 2}) {
      const Tensor expected = train(nullptr, device, stream);
      EXPECT_TRUE(same_bits(train(all(), device, stream), expected));
      EXPECT_TRUE(same_bits(train(schedulable(all(), {.depth = 4}), device, stream), expected));
      EXPECT_TRUE(
          same_bits(train(schedulable(all(), {.window_tensors = 0, .depth = 4}), device, stream), expected));
    }
  }
}

TEST_F(Offload, SaveOnCpuBringsBackTheBits) {
  const Tensor x = on_device({8, 8}), y = on_device({8, 8});
  (x.exp() * y).sum().backward();
  const Tensor want = x.grad().cpu();
  for (const bool pin : {false, true}) {
    x.mutable_grad() = Tensor();
    Tensor loss;
    {
      const auto scope = overdrive::save_on_cpu(pin);
      loss = (x.exp() * y).sum();
    }
    loss.backward();
    EXPECT_TRUE(same_bits(x.grad().cpu(), want));
  }
}

// So that the tests around this one mean something.
TEST_F(Offload, AMissingWaitIsFound) {
  for (const HooksPtr& hooks : {all(), schedulable(all(), {.window_tensors = 0})}) {
    fake::ignore_waits(true);
    train(hooks, 0, 2);
    fake::ignore_waits(false);
    EXPECT_THAT(fake::violations(), Not(IsEmpty()));
    fake::clear_violations();
  }
}

TEST_F(Offload, LeavesNothingOnTheDevice) {
  const Tensor x = on_device({16});
  Tensor a = x.exp(), loss;
  c10::weak_intrusive_ptr<c10::StorageImpl> memory(c10::intrusive_ptr<c10::StorageImpl>{});
  {
    const ScopedHooks scope(all());
    const Tensor b = a * 2;
    memory = b.storage().getWeakStorageImpl();
    loss = b.sin().sum();
  }
  EXPECT_EQ(memory.use_count(), 0u);
  EXPECT_GT(fake::calls().recorded_streams, 0u) << "the copy may still be reading";
  loss.backward();
  EXPECT_TRUE(at::allclose(x.grad().cpu(), 2 * (2 * a.detach().cpu()).cos() * a.detach().cpu()));
}

// One buffer, three users: each copy to it waits for the copy from it that was there before, on whatever
// device.
TEST_F(Offload, BuffersAreUsedAgainWhenTheirCopiesAreDone) {
  const HooksPtr hooks = all();
  for (int round = 0; round < 4; ++round) {
    for (const int device : {0, 1}) {
      const c10::StreamGuard on(fake::stream(device, 2));
      const Tensor tensor = at::full({1000}, round).to(fake::device(device));
      const SaveInfo info{.id = 1, .bytes = 4000, .dtype = at::kFloat};
      Packed packed = hooks->pack(tensor, info);
      if (round % 2 == 0) continue;  // never asked for
      const Tensor back = hooks->unpack(packed, {.node = nullptr, .save = info});
      EXPECT_TRUE(same_bits(back.cpu(), tensor.cpu()));
    }
  }
}

// {x} --Exp--> {a} --Sin, on stream 1--> {b} --+--> {loss}
//               +-----Cos, on stream 2--> {c} --+
// All three save a. Whoever asks second finds it there, and its stream has not waited for the copy yet.
TEST_F(Offload, WhatNodesOnTwoStreamsShareIsWaitedForByBoth) {
  const auto gradient = [](const HooksPtr& hooks) {
    torch::manual_seed(3);
    const Tensor x = on_device({64});
    const auto main = fake::stream(0, 0);
    Tensor loss;
    {
      const ScopedHooks scope(hooks);
      const Tensor a = x.exp();
      std::vector<Tensor> parts;
      for (const int stream : {1, 2}) {
        const c10::StreamGuard on(fake::stream(0, stream));
        fake::wait_for(fake::stream(0, stream), main);
        parts.push_back(stream == 1 ? a.sin() : a.cos());
        fake::wait_for(main, fake::stream(0, stream));
      }
      loss = (parts[0] + parts[1]).sum();
    }
    loss.backward();
    return x.grad().cpu();
  };
  const Tensor expected = gradient(nullptr);
  for (int round = 0; round < 5; ++round) {
    EXPECT_TRUE(same_bits(gradient(schedulable(all(), {.window_tensors = 0, .depth = 8})), expected));
  }
}

// {x} --Mul--> {a} --Sin, on stream 1--> (never run)
//               +---Cos, on stream 2--> {loss}
// Both save a, which is packed once: on stream 1, and unpacked on stream 2.
TEST_F(Offload, WhatAnotherStreamHasPackedIsWaitedFor) {
  const Tensor x = on_device({64});
  const auto main = fake::stream(0, 0);
  const auto step = [&] {
    x.mutable_grad() = Tensor();
    const Tensor a = x * 2;
    for (const int stream : {1, 2}) fake::wait_for(fake::stream(0, stream), main);
    Tensor never_run;
    {
      const c10::StreamGuard on(fake::stream(0, 1));
      never_run = a.sin();
    }
    {
      const c10::StreamGuard on(fake::stream(0, 2));
      a.cos().sum().backward();
    }
    EXPECT_TRUE(at::allclose(x.grad().cpu(), -2 * (2 * x.detach().cpu()).sin()));
    EXPECT_THAT(fake::violations(), IsEmpty());
  };
  {
    const auto scope = overdrive::save_on_cpu(/*pin_memory=*/true);
    step();
  }
  const ScopedHooks scope(all());
  step();
}

TEST_F(Offload, StridesAndTypes) {
  const HooksPtr hooks = all();
  for (const Tensor& cpu :
       {at::randn({4, 6}).t(), at::arange(12).view({3, 4}), at::randn({4, 6}).narrow(1, 0, 2)}) {
    const Tensor tensor =
        cpu.contiguous().to(fake::device(0)).as_strided(cpu.sizes(), cpu.contiguous().strides());
    const SaveInfo info{.id = 1, .bytes = static_cast<int64_t>(tensor.nbytes()), .dtype = tensor.scalar_type()};
    Packed packed = hooks->pack(tensor, info);
    const Tensor back = hooks->unpack(packed, {.node = nullptr, .save = info});
    EXPECT_TRUE(same_bits(back.cpu(), tensor.cpu()));
  }
}

TEST_F(Offload, AChangedTensorIsAnErrorWhateverTheOptionsSay) {
  const Tensor x = on_device({4});
  const ScopedHooks scope(all(), {.check_in_place = false});
  const Tensor y = x * 2, loss = y.sin().sum();
  y.detach().add_(1);
  EXPECT_THAT(message_of([&] { loss.backward(); }).message, HasSubstr("changed in place after it was saved"));
  EXPECT_THAT(fake::violations(), testing::SizeIs(1)) << "the change did not wait for the copy: that is why";
  fake::clear_violations();
}

TEST_F(Offload, SaysThatThereIsNothingToDoForTheCpu) {
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning& warning) override { heard.push_back(warning.msg()); }
    std::vector<std::string> heard;
  } handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  const Tensor x = leaf_of({4});
  const ScopedHooks scope(all());
  (x * 2).sin().exp().sum().backward();
  ASSERT_EQ(handler.heard.size(), 1u);
  EXPECT_THAT(handler.heard[0], HasSubstr("nothing to do for tensors that are on the CPU"));
}

TEST_F(Offload, WhatIsFetchedAheadIsFetchedOnItsOwnDevice) {
  std::atomic<int> fetched{0}, elsewhere{0};
  const auto watching =
      make_hooks([](const Tensor& tensor, const SaveInfo&) { return Packed{.tensors = {tensor}, .state = {}}; },
                 [&](Packed& packed, const UnpackInfo&) {
                   if (is_on_the_fetching_thread()) {
                     const c10::impl::VirtualGuardImpl now(packed.tensors[0].device().type());
                     elsewhere += now.getDevice() != packed.tensors[0].device();
                     ++fetched;
                     fetched.notify_all();
                   }
                   return packed.tensors[0];
                 },
                 {.lossless = true});
  const Tensor x = on_device({8}, 3);
  Tensor loss;
  {
    const ScopedHooks scope(schedulable(watching, {.window_tensors = 0}));
    loss = x.exp().sin().sum();
  }
  loss.register_hook([&](const Tensor&) { fetched.wait(0); });
  loss.backward();
  EXPECT_EQ(elsewhere, 0);
}

TEST_F(Offload, RefusesOptionsThatMakeNoSense) {
  EXPECT_THAT(message_of([] { offload_to_cpu({.min_bytes = -1}); }).message, HasSubstr("min_bytes = -1"));
  EXPECT_THAT(message_of([] { offload_to_cpu({.most_idle_bytes = -1}); }).message,
              HasSubstr("most_idle_bytes = -1"));
}

// A backward that makes a graph saves tensors, too, and those of the device's nodes on another thread.
TEST_F(Offload, AScopeTravelsWithABackwardToTheDevicesThread) {
  const Tensor x = leaf_of({4}), w = on_device({4});
  const Tensor loss = (x.exp().to(fake::device(0)) * w).sin().sum();
  const ScopedHooks scope(copying_);
  torch::autograd::grad({loss}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  std::set<uint64_t> threads;
  for (const SaveInfo& save : copying_->saves) threads.insert(save.thread);
  EXPECT_GT(threads.size(), 1u) << copying_->saves.size() << " tensors were saved";
}

}  // namespace
}  // namespace overdrive::hooks
