// Pipeline: an MLP on the digits whose layers are split over devices. Each batch goes through in four
// micro-batches, and each stage keeps its inputs only and runs again in the backward.
//
// What to look for: the backward of a pipeline is many small ones inside a large one, a Recompute and a
// Checkpoint for each stage and micro-batch. With several GPUs the stages go to them in turn; on a CPU they
// share it, which costs a little time and shows the same graph.
#include "checkpoint/pipeline/pipeline.h"
#include "examples/trainers/digits_classifier.h"

#include <optional>

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

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

class PipelineTrainer final : public DigitsClassifier {
 public:
  explicit PipelineTrainer(const Setup& setup)
      : DigitsClassifier(setup), model_(register_module("model", staged_mlp())) {
    use_adam(2e-3);
  }

 private:
  static constexpr int64_t kChunks = 4;

  torch::Tensor scores_of(const torch::Tensor& images) override { return pipeline().forward(images); }

  // Made with the first batch: before, the parameters are not where they will stay.
  const checkpoint::Pipeline& pipeline() {
    if (!pipeline_) {
      pipeline_.emplace(checkpoint::stages_of(*model_, kLayersOfStages, devices_from(setup().device)),
                        checkpoint::PipelineOptions{.chunks = kChunks});
    }
    return *pipeline_;
  }

  nn::Sequential model_;
  std::optional<checkpoint::Pipeline> pipeline_;
};

}  // namespace

TrainerInfo pipeline() {
  return {.name = "pipeline",
          .what = "MLP split into 3 stages, 4 micro-batches",
          .shows = "checkpointed stages and micro-batches",
          .quality = "test accuracy",
          .good = 0.95,
          .default_steps = 600,
          .make = [](const Setup& setup) { return std::make_unique<PipelineTrainer>(setup); }};
}

}  // namespace overdrive::trainers
