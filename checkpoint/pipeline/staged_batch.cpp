#include "checkpoint/pipeline/staged_batch.h"

#include "checkpoint/region/dependency.h"
#include "checkpoint/pipeline/stage_threads.h"
#include "engine/base/whole_graph_node.h"

#include <utility>

namespace overdrive::checkpoint {

namespace {

class PipelineNode final : public base::HoldingNode, public base::WholeGraphNode {
 public:
  PipelineNode(std::shared_ptr<StagedBatch> batch, base::edge_list next)
      : HoldingNode(std::move(next)), batch_(std::move(batch)) {}

  std::string name() const override { return "Pipeline"; }

  void check_backward() const override {
    TORCH_CHECK(base::Engine::get_default_engine().is_checkpoint_valid(),
                "Checkpointing is not compatible with .grad() or when an `inputs` parameter is passed to "
                ".backward(). Please use .backward() and do not pass its `inputs` argument, or set "
                "PipelineOptions::checkpointed to kNever.");
    TORCH_CHECK(
        !at::GradMode::is_enabled(),
        "A backward with create_graph=true through a pipeline that is checkpointed, which has no gradient of "
        "a gradient. Set PipelineOptions::checkpointed to kNever.");
  }

  base::variable_list apply(base::variable_list&& gradients) override {
    check_backward();
    batch_->go_back(gradients, *this);
    gradients.insert(gradients.begin(), at::Tensor());  // the phony's
    return std::move(gradients);
  }

  void release_variables() override { batch_->release(); }
  // The parts have a history: see HoldingNode.
  void release_resources() override {
    batch_.reset();
    HoldingNode::release_resources();
  }

 private:
  std::shared_ptr<StagedBatch> batch_;
};

}  // namespace

// One backward through the batch. Of the threads that are at it, each has its stage.
class StagedBatch::WayBack {
 public:
  WayBack(StagedBatch& batch, Tensors& gradients, base::Node& node)
      : parts_(batch.parts_),
        gradients_(gradients),
        node_(node),
        keep_graph_(torch::autograd::get_current_graph_task_keep_graph()),
        run_again_(batch.parts_[0].size()) {}

  // Before the gradient is there. What fails here is tried again by step(), which then has the error.
  void prepare(size_t part, size_t stage) noexcept {
    try {
      run_again_[stage] = parts_[part][stage]->run_again(node_);
    } catch (...) {
      run_again_[stage].reset();
    }
  }

  void step(size_t part, size_t stage) {
    StagePart& here = *parts_[part][stage];
    std::unique_ptr<Tape> again = std::move(run_again_[stage]);
    at::Tensor& gradient = gradients_[part];
    if (gradient.defined()) gradient = here.pull(std::move(again), gradient, keep_graph_, node_);
    if (!keep_graph_) here.release();
  }

 private:
  const std::vector<std::vector<std::unique_ptr<StagePart>>>& parts_;
  Tensors& gradients_;
  base::Node& node_;
  const bool keep_graph_;
  std::vector<std::unique_ptr<Tape>> run_again_;  // by each stage, and not yet used
};

StagedBatch::StagedBatch(const PipelineOptions& options, std::shared_ptr<StageThreads> threads, size_t parts,
                         size_t stages)
    : options_(options), threads_(std::move(threads)), parts_(parts), begins_(parts) {
  for (auto& part : parts_) part.resize(stages);
}

at::Tensor StagedBatch::run(size_t part, size_t stage, Function function, const at::Tensor& input,
                            bool checkpointed) {
  if (stage == 0) begins_[part] = torch::autograd::impl::gradient_edge(input);
  auto& slot = parts_[part][stage];
  slot = std::make_unique<StagePart>(std::move(function), input, checkpointed,
                                     options_of_stage(options_.region, stage));
  return slot->take_output();
}

void StagedBatch::tie(std::shared_ptr<StagedBatch> batch, const std::vector<at::Tensor*>& outputs) {
  const size_t parts = outputs.size();
  batch->parts_.resize(parts);
  base::edge_list next = std::move(batch->begins_);
  next.resize(parts);
  next.insert(next.begin(), torch::autograd::impl::gradient_edge(phony(at::kCPU, true)));
  const base::NodePtr node = base::make_node<PipelineNode>(std::move(batch), std::move(next));
  for (at::Tensor* output : outputs) {
    if (is_differentiable(*output)) {
      *output = with_history(*output, node);
    } else {
      node->add_input_metadata(base::Node::undefined_input());  // its place
    }
  }
}

void StagedBatch::go_back(Tensors& gradients, base::Node& node) {
  const size_t parts = parts_.size(), stages = parts_[0].size();
  WayBack way(*this, gradients, node);
  if (parts == 1 || !StageThreads::may_work_for_this_thread()) {
    for (size_t part = parts; part-- > 0;) {
      for (size_t stage = stages; stage-- > 0;) way.step(part, stage);
    }
    return;
  }
  // The other way round: what is first comes last.
  const auto step = [&](size_t part, size_t stage) { way.step(parts - 1 - part, stages - 1 - stage); };
  const auto prepare = [&](size_t part, size_t stage) { way.prepare(parts - 1 - part, stages - 1 - stage); };
  threads_->run({.end = parts,
                 .task = step,
                 .prepare = options_.recompute_before_gradient ? StageThreads::Task(prepare) : nullptr});
}

void StagedBatch::release() {
  for (auto& part : parts_) {
    for (auto& stage : part) stage->release();
  }
}

}  // namespace overdrive::checkpoint
