// Pipeline: an MLP on the digits whose layers are split over devices. Each batch goes through in four
// micro-batches, and each stage keeps its inputs only and runs again in the backward.
//
// What to look for: the backward of a pipeline is many small ones inside a large one, a Recompute and a
// Checkpoint for each stage and micro-batch. With several GPUs the stages go to them in turn; on a CPU they
// share it, which costs a little time and shows the same graph.
#include "checkpoint/pipeline/pipeline.h"
#include "examples/data/digits.h"
#include "examples/trainers/registry.h"

#include <optional>

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

const std::vector<int64_t> kLayersOfStages{3, 2, 2};

nn::Sequential staged_mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(64, 64), nn::GELU(), nn::Linear(64, 64), nn::GELU(),
                        nn::LayerNorm(nn::LayerNormOptions({64})), nn::Linear(64, 10));
}

// One device for each stage, counted from the one that was asked for.
std::vector<at::Device> devices_from(const torch::Device& first) {
  if (first.is_cpu()) return std::vector<at::Device>(kLayersOfStages.size(), first);
  const auto count = static_cast<c10::DeviceIndex>(torch::cuda::device_count());
  std::vector<at::Device> devices;
  for (size_t i = 0; i < kLayersOfStages.size(); ++i) {
    devices.emplace_back(first.type(), static_cast<c10::DeviceIndex>((first.index() + i) % count));
  }
  return devices;
}

class PipelineTrainer final : public Trainer {
 public:
  explicit PipelineTrainer(const Setup& setup)
      : Trainer(setup), data_(data::load_digits()), model_(register_module("model", staged_mlp())) {
    optimizer_ = &add_optimizer(std::make_unique<torch::optim::Adam>(model_->parameters(), 2e-3));
  }

  double step(Meter& meter) override {
    const auto pick = torch::randint(data_.train.labels.size(0), {kBatch}, generator(), torch::kInt64);
    const auto images = place(data_.train.images.index_select(0, pick));
    const auto labels = data_.train.labels.index_select(0, pick);

    optimizer_->zero_grad();
    const auto loss = meter.forward([&] {
      const auto scores = pipeline().forward(images);
      return F::cross_entropy(scores, labels.to(scores.device()));
    });
    meter.backward(loss);
    optimizer_->step();
    return loss.item<double>();
  }

  double evaluate() override {
    torch::NoGradGuard no_grad;
    const auto answers = pipeline().forward(place(data_.test.images)).argmax(1).to(torch::kCPU);
    return answers.eq(data_.test.labels).to(torch::kFloat64).mean().item<double>();
  }

 private:
  static constexpr int64_t kBatch = 32;
  static constexpr int64_t kChunks = 4;

  // Made with the first batch: before, the parameters are not where they will stay.
  const checkpoint::Pipeline& pipeline() {
    if (!pipeline_) {
      pipeline_.emplace(checkpoint::stages_of(*model_, kLayersOfStages, devices_from(setup().device)),
                        checkpoint::PipelineOptions{.chunks = kChunks});
    }
    return *pipeline_;
  }

  const data::Digits data_;
  nn::Sequential model_;
  std::optional<checkpoint::Pipeline> pipeline_;
  torch::optim::Optimizer* optimizer_;
};

}  // namespace

TrainerInfo pipeline() {
  return {.name = "pipeline",
          .group = "pipeline",
          .what = "MLP split into 3 stages, 4 micro-batches",
          .shows = "checkpointed stages and micro-batches",
          .quality = "test accuracy",
          .more_is_better = true,
          .good = 0.95,
          .default_steps = 600,
          .make = [](const Setup& setup) { return std::make_unique<PipelineTrainer>(setup); }};
}

}  // namespace overdrive::trainers
