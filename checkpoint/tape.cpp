#include "checkpoint/tape.h"

#include <torch/csrc/autograd/functions/utils.h>

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

  base::variable_list received;
};

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

Tape::Tape(const Region& region, const Tensors& inputs) : inputs_(base::make_node<InputGradients>()) {
  Tensors ends;
  ends.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    const bool wanted = input.defined() && input.requires_grad();
    requires_grad_.push_back(wanted);
    ends.push_back(wanted ? with_history(input, inputs_) : input.defined() ? input.detach() : input);
  }
  outputs_ = region.run_again(ends, /*graph=*/true);
}

Tensors Tape::pull(const Tensors& gradients) {
  const Tensors outputs = std::move(outputs_);
  base::edge_list roots;
  base::variable_list seeds;
  size_t next = 0;
  for (const at::Tensor& output : outputs) {
    if (!is_differentiable(output)) continue;
    const at::Tensor& gradient = gradients[next++];
    if (!output.requires_grad() || !gradient.defined()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(output));
    seeds.push_back(gradient);
  }
  if (!roots.empty()) {
    base::Engine::get_default_engine().execute(roots, seeds, /*keep_graph=*/false, /*create_graph=*/false,
                                               /*accumulate_grad=*/true, {});
  }
  const base::variable_list& received = end_of(inputs_).received;
  Tensors of_inputs;
  next = 0;
  for (const bool wanted : requires_grad_) {
    of_inputs.push_back(wanted && next < received.size() ? received[next] : at::Tensor());
    if (wanted) ++next;
  }
  return of_inputs;
}

}  // namespace overdrive::checkpoint
