// The contract on a real accelerator. Runs where LibTorch sees a CUDA device and is skipped, with the reason,
// elsewhere; tools/gpu_check.sh asks for it. Multi-device cases end in _MultiCUDA.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/timeline.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>

namespace {

using namespace overdrive;
using torch::Tensor;

int devices() { return static_cast<int>(torch::cuda::device_count()); }

#define NEEDS_DEVICES(count)                                        \
  if (devices() < (count))                                          \
  GTEST_SKIP() << "needs " << (count) << " CUDA devices; LibTorch " \
               << (at::hasCUDA() ? "sees " + std::to_string(devices()) : "has no CUDA")

at::Device gpu(int index = 0) { return {at::kCUDA, static_cast<at::DeviceIndex>(index)}; }

template <typename E>
class Cuda : public test::EngineContract<E> {
 protected:
  void SetUp() override {
    test::EngineContract<E>::SetUp();
    this->allow_new_threads();  // the host's and the driver's
  }
};
TYPED_TEST_SUITE(Cuda, test::Engines, test::EngineNames);

Tensor parameter(at::IntArrayRef sizes, at::Device device) {
  return (torch::randn(sizes) * 0.3).to(device).detach().requires_grad_(true);
}

// Whatever ran before, and with whatever engine: the same kernels in the same order have the same bits.
std::vector<Tensor> train(const std::vector<Tensor>& parameters, const std::function<Tensor()>& loss) {
  for (int step = 0; step < 5; ++step) {
    loss().backward();
    const torch::NoGradGuard no_grad;
    for (const Tensor& p : parameters) {
      p.sub_(p.grad() * 0.05);
      p.mutable_grad().reset();
    }
  }
  std::vector<Tensor> trained;
  for (const Tensor& p : parameters) trained.push_back(p.detach().cpu());
  return trained;
}

std::vector<Tensor> train_mlp(at::Device first, at::Device second) {
  torch::manual_seed(3);
  const Tensor w1 = parameter({16, 32}, first), b1 = parameter({32}, first), w2 = parameter({32, 4}, second);
  const Tensor x = torch::randn({8, 16}).to(first), y = torch::randn({8, 4}).to(second);
  return train({w1, b1, w2},
               [&] { return (torch::relu(x.matmul(w1) + b1).to(second).matmul(w2) - y).pow(2).mean(); });
}

template <typename Body>
auto on_stock(Body&& body) {
  const bool ours = installed();
  if (ours) uninstall();
  auto result = body();
  if (ours) install();
  return result;
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], wanted[i])) << "parameter " << i;
}

TYPED_TEST(Cuda, AnMlpTrainsWithStocksBits_CUDA) {
  NEEDS_DEVICES(1);
  const auto scenario = [] { return train_mlp(gpu(), gpu()); };
  expect_same(scenario(), on_stock(scenario));
}

TYPED_TEST(Cuda, CpuAndDeviceTogetherTrainWithStocksBits_CUDA) {
  NEEDS_DEVICES(1);
  const auto scenario = [] { return train_mlp(gpu(), at::kCPU); };
  expect_same(scenario(), on_stock(scenario));
}

TYPED_TEST(Cuda, TwoDevicesTrainWithStocksBits_MultiCUDA) {
  NEEDS_DEVICES(2);
  const auto scenario = [] { return train_mlp(gpu(0), gpu(1)); };
  expect_same(scenario(), on_stock(scenario));
}

// The forward runs on a side stream behind much work; the gradient is read on the caller's stream.
TYPED_TEST(Cuda, ALeafsGradientMayBeUsedOnTheCallersStream_CUDA) {
  NEEDS_DEVICES(1);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  const c10::Stream here = guard.getStream(gpu()), side = guard.getNewStream(gpu());
  const auto wait = [](const c10::Stream& later, const c10::Stream& earlier) {
    c10::Event event(at::kCUDA);
    event.record(earlier);
    event.block(later);
  };
  const Tensor x = torch::ones({1 << 20}, gpu()).requires_grad_(true);
  for (int round = 0; round < 20; ++round) {
    x.mutable_grad().reset();
    Tensor y = x;
    wait(side, here);
    {
      const c10::StreamGuard on_side(side);
      for (int i = 0; i < 20; ++i) y = y * 1.5;
      for (int i = 0; i < 20; ++i) y = y / 1.5;
    }
    wait(here, side);
    y.sum().backward();
    EXPECT_LT((x.grad() * 2 - 2).abs().max().template item<float>(), 1e-3f) << "round " << round;
  }
}

TYPED_TEST(Cuda, TheCurrentDeviceAndStreamAreTheCallersAfterwards_CUDA) {
  NEEDS_DEVICES(1);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  const c10::Stream side = guard.getNewStream(gpu());
  const c10::StreamGuard on_side(side);
  const Tensor x = torch::ones({4}, gpu()).requires_grad_(true);
  (x * 2).exp().sum().backward();
  EXPECT_EQ(guard.getStream(gpu()), side);
  EXPECT_EQ(guard.getDevice(), gpu());
}

TYPED_TEST(Cuda, AnErrorInANodeReachesTheCaller_CUDA) {
  NEEDS_DEVICES(1);
  const Tensor x = torch::ones({4}, gpu()).requires_grad_(true);
  const Tensor y = x * 2;
  y.register_hook([](const Tensor&) -> Tensor { throw std::out_of_range("on the device"); });
  EXPECT_EQ(test::message_of([&] { y.cpu().sum().backward(); }),
            (test::Caught{"std::out_of_range", "on the device"}));
}

TYPED_TEST(Cuda, ABackwardInsideANode_CUDA) {
  NEEDS_DEVICES(1);
  const Tensor x = torch::ones({4}, gpu()).requires_grad_(true),
               z = torch::ones({4}, gpu()).requires_grad_(true);
  const Tensor y = x * 2;
  y.register_hook([&](const Tensor&) {
    const torch::AutoGradMode on(true);
    (z * 5).cpu().sum().backward();
  });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(z.grad().cpu(), torch::full({4}, 5.0)));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({4}, 2.0)));
}

TYPED_TEST(Cuda, CallbacksSeeTheCallersStream_CUDA) {
  NEEDS_DEVICES(1);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  const c10::Stream side = guard.getNewStream(gpu());
  const Tensor x = torch::ones({4}, gpu()).requires_grad_(true);
  const Tensor y = x * 2;
  std::optional<c10::Stream> seen;
  y.register_hook([&](const Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([&] { seen = guard.getStream(gpu()); });
  });
  const Tensor loss = y.sum();
  const c10::StreamGuard on_side(side);
  loss.backward();
  EXPECT_EQ(seen, side);
}

// A CUDA LibTorch without a device or a driver counts none and goes on.
TEST(CudaCount, IsZeroWithoutADeviceAndBackwardsRun) {
  if (devices() != 0) GTEST_SKIP() << "there are CUDA devices here";
  const ScopedInstall scope;
  const Tensor x = torch::ones({2}, torch::requires_grad());
  (x * 3).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 3.0)));
}

}  // namespace
