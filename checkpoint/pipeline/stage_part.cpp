#include "checkpoint/pipeline/stage_part.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <string>
#include <utility>

namespace overdrive::checkpoint {

Options options_of_stage(Options region, size_t stage) {
  region.name += (region.name.empty() ? "stage " : ", stage ") + std::to_string(stage);
  return region;
}

StagePart::StagePart(Function function, const at::Tensor& input, bool checkpointed, const Options& options)
    : input_(checkpointed ? Tensors{input} : Tensors{}) {
  bool wants_gradient = true;  // of a region nobody knows before it has run again
  if (checkpointed) {
    region_ = std::make_unique<Region>(std::move(function), options);
    output_ = region_->run_first({input}, /*graph=*/false)[0];
  } else {
    Tensors outputs;
    kept_ = std::make_unique<Tape>(function, Tensors{input}, outputs);
    output_ = std::move(outputs[0]);
    wants_gradient = output_.requires_grad();
  }
  output_ = output_.detach();
  if (wants_gradient && is_differentiable(output_)) output_.requires_grad_();
}

at::Tensor StagePart::take_output() { return std::exchange(output_, at::Tensor()); }

std::unique_ptr<Tape> StagePart::run_again(base::Node& node) const {
  if (region_ == nullptr) return nullptr;
  const Tensors input = input_.unpack(&node);
  return std::make_unique<Tape>(*region_, input, requiring_grad(input));
}

at::Tensor StagePart::pull(std::unique_ptr<Tape> again, const at::Tensor& gradient, bool keep_graph,
                           base::Node& node) {
  if (region_ == nullptr) return pull_kept(gradient, keep_graph);
  if (again == nullptr) again = run_again(node);
  return again->pull({gradient})[0];
}

// A graph that is kept ends in one place, where gradients of two backwards would meet.
at::Tensor StagePart::pull_kept(const at::Tensor& gradient, bool keep_graph) {
  TORCH_CHECK(!under_way_.exchange(true),
              "Pipeline: a backward through this batch begins while another one is under way in it.");
  const auto over = c10::make_scope_exit([this] { under_way_ = false; });
  TORCH_CHECK(kept_ != nullptr, torch::autograd::ERR_BACKWARD_TWICE);
  return kept_->pull({gradient}, keep_graph)[0];
}

void StagePart::release() {
  input_.release();
  kept_.reset();
}

}  // namespace overdrive::checkpoint
