#include "checkpoint/region/tape.h"

#include <torch/csrc/autograd/functions/utils.h>

#include <optional>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// The end of a recorded graph: keeps the gradients that arrive. Not a leaf, so that nothing is copied, and
// so that the region may do with its inputs what it may do with any tensor.
class InputGradients final : public base::Node {
 public:
  std::string name() const override { return "CheckpointInputs"; }

  base::variable_list apply(base::variable_list&& gradients) override {
    received = std::move(gradients);
    return {};
  }

  base::variable_list received;  // by the backward under way
};

std::vector<bool> requiring_grad(const Tensors& tensors) {
  std::vector<bool> requiring;
  requiring.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) requiring.push_back(tensor.defined() && tensor.requires_grad());
  return requiring;
}

InputGradients& end_of(const base::NodePtr& node) { return static_cast<InputGradients&>(*node); }

}  // namespace

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && torch::autograd::isDifferentiableType(tensor.scalar_type());
}

at::Tensor with_history(const at::Tensor& tensor, const base::NodePtr& node) {
  at::Tensor alias = tensor.detach();
  torch::autograd::set_history(alias, node);
  return alias;
}

Tape::Tape(const Region& region, const Tensors& inputs) : Tape(region, inputs, requiring_grad(inputs)) {}

Tape::Tape(const Region& region, const Tensors& inputs, std::vector<bool> wanted)
    : inputs_(base::make_node<InputGradients>()), wanted_(std::move(wanted)) {
  outer_values_ = region.run_again_within(inputs, [&](const Function& function, const Tensors& arguments) {
    return std::optional(run(function, arguments));
  });
}

Tensors Tape::run(const Function& function, const Tensors& inputs) {
  ends_.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    ends_.push_back(wanted_[i] ? with_history(input, inputs_) : input.defined() ? input.detach() : input);
  }
  Tensors outputs = function(ends_);
  for (const at::Tensor& output : outputs) {
    if (!is_differentiable(output)) continue;
    roots_.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output) : base::Edge());
  }
  return outputs;
}

void Tape::note_stream(c10::Device device) {
  elsewhere_ = true;
  made_ = base::StreamMark::here(device);
}

// The nodes run on the stream of the recomputation; the engine makes it wait for the seeds, and ours at the end
// for the gradients.
Tensors Tape::pull(const Tensors& gradients) {
  const base::edge_list outputs = std::move(roots_);
  base::edge_list roots;
  base::variable_list seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].is_valid() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(gradients[i]);
  }
  if (!roots.empty()) {
    const OuterValuesScope values(outer_values_);
    base::Engine::get_default_engine().execute(roots, seeds, /*keep_graph=*/false, /*create_graph=*/false,
                                               /*accumulate_grad=*/true, {});
  }
  const base::variable_list received = std::move(end_of(inputs_).received);
  Tensors of_inputs;
  size_t next = 0;
  for (const bool wanted : wanted_) {
    of_inputs.push_back(wanted && next < received.size() ? received[next] : at::Tensor());
    if (wanted) ++next;
    if (elsewhere_ && of_inputs.back().defined()) base::note_use_here(of_inputs.back());
  }
  return of_inputs;
}

}  // namespace overdrive::checkpoint
