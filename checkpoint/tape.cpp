#include "checkpoint/tape.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
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

  base::variable_list received;
};

// What the thread allocates and keeps, by the reports that allocators make to a profiler.
class NetBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes += size; }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes = 0;
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
  if (region.options().ahead_bytes == 0) {
    outputs_ = region.run_again(ends, /*graph=*/true);
    return;
  }
  region.run_again_within(ends, [this](const Function& function, const Tensors& arguments) {
    const auto meter = std::make_shared<NetBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    outputs_ = function(arguments);
    bytes_ = meter->bytes;
    return std::optional(outputs_);
  });
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
