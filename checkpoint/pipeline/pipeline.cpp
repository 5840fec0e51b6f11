#include "checkpoint/pipeline/pipeline.h"

#include "checkpoint/dependency.h"
#include "checkpoint/early.h"
#include "checkpoint/pipeline/transfer.h"

#include <ATen/ops/cat.h>

#include <map>
#include <utility>

namespace overdrive::checkpoint {

namespace {

using Checkpointed = PipelineOptions::Checkpointed;

at::Tensor run(const Stage& stage, at::Tensor value) {
  for (const Layer& layer : stage.layers) value = layer(value);
  return value;
}

std::vector<int64_t> parts_of(const at::Tensor& batch, int64_t chunks) {
  TORCH_CHECK(batch.defined() && batch.dim() >= 1, "Pipeline: the batch has no first dimension to cut along.");
  TORCH_CHECK(batch.size(0) >= chunks, "Pipeline: a batch of ", batch.size(0), " cannot be cut into ", chunks,
              " micro-batches. Use a larger batch or fewer chunks.");
  return even_parts(batch.size(0), chunks);
}

}  // namespace

namespace detail {

void check_split(size_t layers, const std::vector<int64_t>& balance, const std::vector<at::Device>& devices) {
  TORCH_CHECK(balance.size() <= devices.size(), "Pipeline: stage ", devices.size(),
              " is on no device: ", balance.size(), " stages were asked for, and ", devices.size(),
              " devices given.");
  TORCH_CHECK(balance.size() == devices.size(), "Pipeline: ", devices.size(), " devices were given for ",
              balance.size(), " stages.");
  int64_t sum = 0;
  for (size_t i = 0; i < balance.size(); ++i) {
    TORCH_CHECK(balance[i] >= 1, "Pipeline: stage ", i, " has ", balance[i], " layers; it needs one at least.");
    sum += balance[i];
  }
  TORCH_CHECK(sum == static_cast<int64_t>(layers), "Pipeline: the stages have ", sum, " layers together, and ",
              "the model has ", layers, ".");
}

void check_unshared(const std::vector<Stage>& stages) {
  std::map<const void*, size_t> owner;
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const at::Tensor& parameter : stages[i].parameters) {
      const auto [found, added] = owner.emplace(parameter.storage().unsafeGetStorageImpl(), i);
      TORCH_CHECK(added || found->second == i, "Pipeline: stages ", found->second, " and ", i,
                  " share a parameter of sizes ", parameter.sizes(),
                  ". On two devices it would be two parameters. Put the layers that share it into one stage.");
    }
  }
}

}  // namespace detail

Pipeline::Pipeline(std::vector<Stage> stages, PipelineOptions options) : options_(std::move(options)) {
  TORCH_CHECK(!stages.empty(), "Pipeline: there is no stage.");
  TORCH_CHECK(options_.chunks >= 1, "Pipeline: ", options_.chunks, " chunks; one is the least.");
  TORCH_CHECK(options_.region.form == Form::kEarly,
              "Pipeline: stages are checkpointed in the early form, which can begin before the gradient.");
  detail::check_unshared(stages);
  for (Stage& stage : stages) {
    TORCH_CHECK(stage.device.is_cpu() || stage.device.has_index(), "Pipeline: stage ", stages_.size(),
                " is on ", stage.device, ", which does not say on which one of these devices.");
    stages_.push_back(std::make_shared<const Stage>(std::move(stage)));
  }
}

at::Tensor Pipeline::forward(const at::Tensor& batch) const {
  const std::vector<int64_t> parts = parts_of(batch, options_.chunks);
  for (size_t i = 0; parts.size() > 1 && i < stages_.size(); ++i) {
    const std::string obstacle = stages_[i]->obstacle ? stages_[i]->obstacle() : "";
    TORCH_CHECK(obstacle.empty(), "Pipeline: in stage ", i, ", ", obstacle, ".");
  }
  const std::vector<at::Tensor> micro_batches = batch.split_with_sizes(parts);
  std::vector<at::Tensor> outputs;
  for (size_t j = 0; j < micro_batches.size(); ++j) {
    const bool last = j + 1 == micro_batches.size();
    const bool checkpointed = options_.checkpointed == Checkpointed::kAlways ||
                              (options_.checkpointed == Checkpointed::kExceptLast && !last);
    outputs.push_back(run_micro_batch(micro_batches[j], checkpointed));
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs);
}

// Note [Recomputing a stage before its gradient]
// {stage i} --Fork--> ... {stage i+1} --Join-->
//                 `-- Recompute i --'
// The gradient of stage i+1's output runs into Join first. From there Recompute i may run, on stage i's device,
// while stage i+1 makes the gradient that Fork waits for.
at::Tensor Pipeline::run_micro_batch(at::Tensor value, bool checkpointed) const {
  at::Tensor waiting;  // the phony of the stage before
  const auto join_waiting = [&waiting, &value] {
    // Through what has no gradient, none comes back to wait for.
    const at::Tensor phony = std::exchange(waiting, at::Tensor());
    if (phony.defined() && value.requires_grad()) value = join(value, phony);
  };
  for (size_t i = 0; i < stages_.size(); ++i) {
    const std::shared_ptr<const Stage>& stage = stages_[i];
    value = transfer(value, stage->device);
    if (!checkpointed || !at::GradMode::is_enabled()) {
      value = run(*stage, value);
      continue;
    }
    Options region = options_.region;
    region.name += (region.name.empty() ? "stage " : ", stage ") + std::to_string(i);
    Checkpointing checkpointing([stage](const Tensors& inputs) { return Tensors{run(*stage, inputs[0])}; },
                                {value}, std::move(region));
    Tensors outputs = checkpointing.checkpoint();
    at::Tensor phony;
    if (options_.recompute_before_gradient) phony = checkpointing.recompute_before(outputs);
    value = outputs[0];
    join_waiting();
    waiting = std::move(phony);
  }
  join_waiting();
  return value;
}

}  // namespace overdrive::checkpoint
