// Packers on a CUDA device. Runs where LibTorch sees one and is skipped, with the reason, elsewhere.
#include "test/hooks/packers_fixture.h"

#include <torch/cuda.h>

namespace overdrive::hooks {
namespace {

class CudaPackers : public Packers {
 protected:
  void SetUp() override {
    Packers::SetUp();
    if (!torch::cuda::is_available()) GTEST_SKIP() << "LibTorch sees no CUDA device";
  }
  static Tensor on_gpu(const Tensor& tensor) { return tensor.to(at::Device(at::kCUDA, 0)); }

  // The gradient of w after a few steps under the hooks.
  static Tensor train(const HooksPtr& hooks) {
    torch::manual_seed(3);
    const Tensor x = on_gpu(at::randn({256, 256})), w = on_gpu(at::randn({256, 256})).detach().requires_grad_();
    for (int step = 0; step < 3; ++step) {
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

TEST_F(CudaPackers, QuantiseGivesTheBitsOfTheCpu_CUDA) {
  const Tensor x = at::randn({5000}) * at::logspace(-30, 30, 5000);
  x[17] = kNaN;
  x[18] = -kInf;
  x[4999] = kInf;
  const Tensor there = on_gpu(x);
  for (const QuantisedType type : {QuantisedType::kInt8, QuantisedType::kBFloat16}) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      const HooksPtr hooks = quantise({.type = type, .rounding = rounding});
      if (!hooks->wants(there, info_of(there))) GTEST_SKIP() << "built without the CUDA toolkit";
      Packed here = hooks->pack(x, info_of(x)), packed = hooks->pack(there, info_of(there));
      for (size_t i = 0; i < here.tensors.size(); ++i) {
        EXPECT_TRUE(same_bits(packed.tensors[i].cpu(), here.tensors[i])) << i;
      }
      const SaveInfo save = info_of(x);
      const UnpackInfo info{.node = nullptr, .save = save};
      EXPECT_TRUE(same_bits(hooks->unpack(packed, info).cpu(), hooks->unpack(here, info)));
    }
  }
}

TEST_F(CudaPackers, OffloadBringsBackTheBits_CUDA) {
  const Tensor expected = train(nullptr);
  EXPECT_TRUE(same_bits(train(offload_to_cpu()), expected));
  EXPECT_TRUE(same_bits(train(schedulable(offload_to_cpu())), expected));
  EXPECT_TRUE(same_bits(train(schedulable(offload_to_cpu(), {.window_tensors = 0, .depth = 8})), expected));
}

}  // namespace
}  // namespace overdrive::hooks
