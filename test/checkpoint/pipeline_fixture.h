// Models for pipelines, on the CPU and on the fake accelerator, and what a step of the unsplit model leaves
// behind.
#pragma once

#include "checkpoint/pipeline/pipeline.h"
#include "test/checkpoint/device_fixture.h"

#include <torch/nn.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace overdrive::checkpoint {

using Checkpointed = PipelineOptions::Checkpointed;
namespace nn = torch::nn;

// For a failing test to end.
inline void wait_for(const std::atomic<bool>& there) {
  for (int i = 0; i < 10'000 && !there; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

inline std::vector<at::Device> cpus(size_t count) {
  return std::vector<at::Device>(count, at::Device(at::kCPU));
}
inline std::vector<at::Device> fakes(int count) {
  std::vector<at::Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(test::fake::device(i));
  return devices;
}

// nn::Module::to() cannot bring a parameter to a foreign device, so this layer is made there.
struct PlacedImpl : nn::Module {
  PlacedImpl(int64_t in, int64_t out, const at::TensorOptions& where)
      : weight(register_parameter("weight", at::randn({out, in}).div(3).to(where))),
        bias(register_parameter("bias", at::randn({out}).to(where))) {}
  Tensor forward(const Tensor& t) { return at::addmm(bias, t, weight.t()); }
  Tensor weight, bias;
};
TORCH_MODULE(Placed);

// Seven layers, of which four have parameters, on these devices.
inline nn::Sequential model(const std::vector<at::Device>& at, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(2);
  const auto where = [&](size_t i) { return at::TensorOptions(dtype).device(at[i]); };
  return nn::Sequential(Placed(6, 12, where(0)), nn::Tanh(), Placed(12, 12, where(1)), nn::GELU(),
                        Placed(12, 12, where(2)), nn::Sigmoid(), Placed(12, 5, where(3)));
}

struct Results {
  Tensor output, input_gradient;
  Tensors gradients;
};

inline Results results(nn::Sequential& layers, const Tensor& x,
                       const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor input = x.detach().clone().requires_grad_();
  layers->zero_grad(/*set_to_none=*/true);
  const Tensor y = forward(input);
  y.square().sum().backward();
  Results all{y.detach().cpu(), input.grad(), {}};
  for (const Tensor& parameter : layers->parameters()) all.gradients.push_back(parameter.grad().cpu());
  return all;
}

// The unsplit model, over the same micro-batches in the same order. Copied where a pipeline copies them to a
// device: some matrix products have other bits for memory that is aligned otherwise.
inline Tensor in_micro_batches(nn::Sequential& layers, const Tensor& x, int64_t chunks, bool copied = false) {
  Tensors outputs;
  for (const Tensor& part : x.split_with_sizes(even_parts(x.size(0), chunks))) {
    outputs.push_back(layers->forward(copied ? part.clone() : part));
  }
  return at::cat(outputs);
}

inline void expect_same_bits(const Results& got, const Results& want) {
  EXPECT_TRUE(same_bits(got.output, want.output));
  EXPECT_TRUE(same_bits(got.input_gradient, want.input_gradient));
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(got.gradients[i], want.gradients[i])) << "parameter " << i;
  }
}

class PipelineTest : public DeviceCheckpointTest {
 protected:
  void expect_equal_to_unsplit(const std::vector<at::Device>& devices, const PipelineOptions& options) {
    const Tensor batch = at::randn({7, 6});
    nn::Sequential whole = model(cpus(4));
    const Results want = results(whole, batch, [&](const Tensor& t) {
      return in_micro_batches(whole, t, options.chunks, !devices[0].is_cpu());
    });
    nn::Sequential split = model({devices[0], devices[1], devices[2], devices[2]});
    const Pipeline pipeline(stages_of(*split, {2, 2, 3}, devices), options);
    const Results got = results(split, batch, [&](const Tensor& t) { return pipeline.forward(t).cpu(); });
    expect_same_bits(got, want);
  }
};

}  // namespace overdrive::checkpoint
