#include "checkpoint/pipeline/pipeline.h"

#include "checkpoint/early/early.h"
#include "checkpoint/region/dependency.h"
#include "checkpoint/region/tape.h"
#include "engine/base/auxiliary_span.h"
#include "engine/base/no_destructor.h"
#include "engine/base/stream_mark.h"

#include <ATen/ops/cat.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <utility>

namespace overdrive::checkpoint {

namespace {

using Checkpointed = PipelineOptions::Checkpointed;

// A copy on a stream of its own, in the forward and, for the gradient, back. LibTorch's copy is work on the
// source's current stream, and makes the target's wait for it.
at::Tensor copy(const at::Tensor& tensor, const at::Device& device) {
  if (tensor.is_cpu()) return tensor.to(device);
  static base::NoDestructor<base::SideStreams> copies;
  const c10::Device source = tensor.device();
  const c10::Stream aside = copies->of(source);
  base::wait_for(aside, c10::impl::VirtualGuardImpl(source.type()).getStream(source));
  const c10::StreamGuard stream(aside);
  base::note_use_here(tensor);
  return tensor.to(device);
}

// The tensor on that device; itself where it is there already.
at::Tensor transfer(const at::Tensor& tensor, at::Device device);

class Transfer final : public base::Node {
 public:
  Transfer(const at::Device& back_to, base::edge_list next) : Node(std::move(next)), back_to_(back_to) {}

  std::string name() const override { return "Transfer"; }
  base::variable_list apply(base::variable_list&& gradients) override {
    return {gradients[0].defined() ? transfer(gradients[0], back_to_) : at::Tensor()};
  }

 private:
  const at::Device back_to_;
};

at::Tensor transfer(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device) return tensor;
  at::Tensor moved;
  {
    const at::NoGradGuard no_grad;
    moved = copy(tensor, device);
  }
  if (!at::GradMode::is_enabled() || !tensor.requires_grad()) return moved;
  return with_history(moved,
                      base::make_node<Transfer>(tensor.device(),
                                                base::edge_list{torch::autograd::impl::gradient_edge(tensor)}));
}

at::Tensor run(const Stage& stage, at::Tensor value) {
  for (const Layer& layer : stage.layers) value = layer(value);
  return value;
}

// The same, with the stage in errors of the layers. Errors keep their type.
at::Tensor run(const Stage& stage, at::Tensor value, size_t index) {
  try {
    return run(stage, std::move(value));
  } catch (c10::Error& error) {
    error.add_context(c10::str("while stage ", index, " of a Pipeline ran, on ", stage.device));
    throw;
  }
}

// Throws when nothing can be on the device.
void check_device(size_t stage, const at::Device& device) {
  if (device.is_cpu()) return;
  TORCH_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "Pipeline: stage ", stage, " is to be on ", device,
              ", but this LibTorch knows no such devices. Use a LibTorch built for them, or at::kCPU.");
  TORCH_CHECK(device.has_index(), "Pipeline: stage ", stage, " is on ", device,
              ", which does not say on which one of these devices.");
  const int64_t count = c10::impl::VirtualGuardImpl(device.type()).deviceCount();
  TORCH_CHECK(device.index() < count, "Pipeline: stage ", stage, " is to be on ", device,
              ", but there are only ", count, " such devices.");
}

// The name of a region says which stage it is.
Options options_of_stage(Options region, size_t stage) {
  region.form = Form::kEarly;
  region.name += (region.name.empty() ? "stage " : ", stage ") + std::to_string(stage);
  return region;
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
  TORCH_CHECK(layers > 0 && !balance.empty(), "Pipeline: there is nothing to split: ", layers, " layers for ",
              balance.size(), " stages.");
  int64_t sum = 0;
  for (size_t i = 0; i < balance.size(); ++i) {
    check_device(i, devices[i]);
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
  TORCH_CHECK(options_.region.form != Form::kOnDemand,
              "Pipeline: stages are checkpointed in the early form, which can begin before the gradient.");
  check_options("Pipeline", options_.region, options_.region.form.value_or(Form::kEarly));
  TORCH_CHECK(options_.checkpointed == Checkpointed::kAlways ||
                  options_.checkpointed == Checkpointed::kExceptLast ||
                  options_.checkpointed == Checkpointed::kNever,
              "Pipeline: PipelineOptions::checkpointed is ", static_cast<int>(options_.checkpointed),
              ", which is none of kAlways, kExceptLast and kNever.");
  detail::check_unshared(stages);
  for (Stage& stage : stages) {
    check_device(stages_.size(), stage.device);
    TORCH_CHECK(!stage.layers.empty(), "Pipeline: stage ", stages_.size(),
                " has no layers; it needs one at least.");
    for (const Layer& layer : stage.layers) {
      TORCH_CHECK(layer != nullptr, "Pipeline: a layer of stage ", stages_.size(), " is an empty function.");
    }
    stages_.push_back(std::make_shared<const Stage>(std::move(stage)));
  }
}

// One part of a batch on its way through the stages.
struct Pipeline::MicroBatch {
  int64_t number;  // from 0
  at::Tensor value;
  bool checkpointed;
  at::Tensor waiting = {};  // the token of the stage before

  void release_waiting() {
    // Through what has no gradient, none comes back to wait for.
    const at::Tensor token = std::exchange(waiting, at::Tensor());
    if (token.defined() && value.requires_grad()) value = release_in_backward(value, token);
  }
};

std::vector<Pipeline::MicroBatch> Pipeline::cut(const at::Tensor& batch) const {
  std::vector<MicroBatch> parts;
  for (at::Tensor& part : batch.split_with_sizes(parts_of(batch, options_.chunks))) {
    parts.push_back(
        {static_cast<int64_t>(parts.size()), std::move(part), options_.checkpointed == Checkpointed::kAlways});
  }
  if (options_.checkpointed == Checkpointed::kExceptLast) {
    for (size_t i = 0; i + 1 < parts.size(); ++i) parts[i].checkpointed = true;
  }
  return parts;
}

at::Tensor Pipeline::forward(const at::Tensor& batch) const {
  std::vector<MicroBatch> parts = cut(batch);
  for (size_t i = 0; parts.size() > 1 && i < stages_.size(); ++i) {
    const std::string obstacle = stages_[i]->obstacle ? stages_[i]->obstacle() : "";
    TORCH_CHECK(obstacle.empty(), "Pipeline: in stage ", i, ", ", obstacle, ".");
  }
  for (MicroBatch& part : parts) {
    for (size_t i = 0; i < stages_.size(); ++i) step(i, part);
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(parts.size());
  for (MicroBatch& part : parts) outputs.push_back(std::move(part.value));
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs);
}

// Note [Recomputing a stage before its gradient]
// {stage i} --Wait--> ... {stage i+1} --Release-->
//                 `-- Recompute i --'
// The gradient of stage i+1's output runs into Release first. From there Recompute i may run, on stage i's
// device, while stage i+1 makes the gradient that Wait waits for.
void Pipeline::step(size_t i, MicroBatch& part) const {
  const std::shared_ptr<const Stage>& stage = stages_[i];
  const base::AuxiliarySpanScope span([&] {
    return base::AuxiliarySpan{.kind = base::AuxiliarySpan::Kind::kMicroBatch,
                               .name = c10::str("stage ", i),
                               .number = part.number,
                               .device = static_cast<int8_t>(stage->device.type()),
                               .device_index = stage->device.index()};
  });
  part.value = transfer(part.value, stage->device);
  if (!part.checkpointed || !at::GradMode::is_enabled()) {
    part.value = run(*stage, part.value, i);
  } else {
    Checkpointing checkpointing(
        [stage, i](const Tensors& inputs) { return Tensors{run(*stage, inputs[0], i)}; }, {part.value},
        options_of_stage(options_.region, i));
    Tensors outputs = checkpointing.checkpoint();
    at::Tensor token;
    if (options_.recompute_before_gradient) token = checkpointing.recompute_before(outputs);
    part.value = outputs[0];
    part.release_waiting();
    part.waiting = std::move(token);
  }
  if (i + 1 == stages_.size()) part.release_waiting();
}

}  // namespace overdrive::checkpoint
