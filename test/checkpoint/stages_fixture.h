// Stages on the CPU that go back at the same time, and what a step leaves behind.
#pragma once

#include "test/checkpoint/pipeline_fixture.h"

#include <atomic>
#include <functional>
#include <utility>

namespace overdrive::checkpoint {

class StagesGoingBack : public DeviceCheckpointTest {
 protected:
  void SetUp() override {
    DeviceCheckpointTest::SetUp();
    for (int i = 0; i < 3; ++i) weights.push_back((at::randn({8, 8}) / 3).requires_grad_());
    x = at::randn({7, 8}).requires_grad_();
  }

  Layer layer(size_t index) const {
    return [w = weights[index]](const Tensor& t) { return at::linear(t, w).tanh().sin(); };
  }
  static Stage stage(Layer layer) {
    return {.layers = {std::move(layer)}, .device = at::kCPU, .parameters = {}};
  }
  Pipeline pipeline(const PipelineOptions& options) const {
    return Pipeline({stage(layer(0)), stage(layer(1)), stage(layer(2))}, options);
  }

  // Two stages that hand on rows with the micro-batch's number, and note gradients on their way back.
  using Back = std::function<void(int stage, int part)>;
  static Pipeline watched(const Back& back, const PipelineOptions& options) {
    const auto watching = [&back](int index) {
      return stage([&back, index](const Tensor& t) {
        Tensor y = t * 1;
        const int part = static_cast<int>(t.detach()[0][0].item<float>());
        if (y.requires_grad()) y.register_hook([&back, index, part](const Tensor&) { back(index, part); });
        return y;
      });
    };
    return Pipeline({watching(0), watching(1)}, options);
  }
  static Tensor numbered(int64_t rows) {
    return at::arange(rows, at::kFloat).unsqueeze(1).expand({rows, 3}).contiguous().requires_grad_();
  }

  // What a step leaves behind.
  Tensors gradients(const std::function<void()>& step) {
    x.mutable_grad() = Tensor();
    for (const Tensor& w : weights) w.mutable_grad() = Tensor();
    step();
    Tensors all{x.grad()};
    for (const Tensor& w : weights) all.push_back(w.grad());
    return all;
  }
  static void expect_same(const Tensors& got, const Tensors& want) {
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  }

  Tensors weights;
};

}  // namespace overdrive::checkpoint
