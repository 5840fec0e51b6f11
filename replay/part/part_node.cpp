#include "replay/part/part_node.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace overdrive::replay {

namespace {

using base::Edge;
using base::edge_list;
using base::variable_list;
using engine::host::VersionCheck;

bool reads_in_backward(const Program& program, int memory) {
  const auto touches = [&](const Argument& argument) {
    return std::any_of(argument.values.begin(), argument.values.end(),
                       [&](int value) { return value >= 0 && program.values[value].memory == memory; });
  };
  return std::any_of(
      program.operators.begin() + program.backward_begins, program.operators.end(),
      [&](const Operator& op) { return !op.vanishes && std::any_of(op.in.begin(), op.in.end(), touches); });
}

// A tensor from before the call that is changed later is no longer what the forward read.
[[noreturn]] void refuse(const at::Tensor& tensor, const VersionCheck& version, const PartPlan::Read& read) {
  engine::host::refuse_changed({tensor, tensor.sizes(), version.counter().current_version(),
                                version.saved_version(), read.producer, read.output_nr});
}

}  // namespace

PartPlan::PartPlan(const Program& program, const PartFunction& function)
    : form(function.form()), uses(function.uses()) {
  for (size_t i = 0; i < program.outputs; ++i) differentiable.push_back(function.is_differentiable(i));
  std::vector<int> memories;
  for (const bool is_saved : {true, false}) {
    for (const OutsideTensor& tensor : program.outside) {
      const int memory = program.values[tensor.value].memory;
      if (!tensor.lives || reads_in_backward(program, memory) != is_saved ||
          function.is_placeholder(tensor.raw))
        continue;
      outside.push_back(tensor.raw);
      written.push_back(program.memories[memory].written);
      has_state |= written.back();
    }
    if (is_saved) saved = outside.size();
  }
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin == Origin::kInput && reads_in_backward(program, static_cast<int>(i)))
      inputs.push_back({memory.input});
  }
  for (size_t i = 0; i < program.outputs; ++i) {
    const int value = program.results[i];
    if (value < 0 || !reads_in_backward(program, program.values[value].memory)) continue;
    outputs.push_back({static_cast<int>(i), function.producer(i).first, function.producer(i).second});
  }
  has_state |= program.uses_random_numbers();
}

void PartNode::attach(std::shared_ptr<PartFunction> function, std::shared_ptr<const PartPlan> plan,
                      std::shared_ptr<PartCounts> counts, Lease lease, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& outputs, Snapshot before) {
  edge_list edges;
  edges.reserve(plan->uses.size());
  for (const PartUse& use : plan->uses) {
    if (use.input != PartUse::kLeaf) {
      edges.push_back(torch::autograd::impl::gradient_edge(inputs[use.input]));
      continue;
    }
    const at::Tensor leaf(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(use.leaf));
    edges.push_back(torch::autograd::impl::gradient_edge(leaf));
  }
  const base::NodePtr node = base::make_node<PartNode>(std::move(function), plan, std::move(counts),
                                                       std::move(lease), inputs, std::move(before));
  node->set_next_edges(std::move(edges));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (plan->differentiable[i]) torch::autograd::set_history(outputs[i], node);
  }
  auto& part = static_cast<PartNode&>(*node);
  for (const PartPlan::Read& read : plan->outputs) part.output_versions_.emplace_back(outputs[read.index]);
}

PartNode::PartNode(std::shared_ptr<PartFunction> function, std::shared_ptr<const PartPlan> plan,
                   std::shared_ptr<PartCounts> counts, Lease lease, const std::vector<at::Tensor>& inputs,
                   Snapshot before)
    : function_(std::move(function)),
      plan_(std::move(plan)),
      counts_(std::move(counts)),
      lease_(std::move(lease)),
      inputs_(inputs),
      before_(std::move(before)) {
  for (const at::Tensor& input : inputs_) input_versions_.emplace_back(input);
  keep_outside();
}

// The memory stays while a backward may read it, as what eager's nodes save does.
void PartNode::keep_outside() {
  outside_.reserve(plan_->outside.size());
  for (c10::TensorImpl* raw : plan_->outside) {
    const at::Tensor tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(raw));
    outside_.push_back({WeakTensor(tensor.getIntrusivePtr()), tensor.storage(), VersionCheck(tensor)});
  }
}

void PartNode::check_outside(size_t begin, size_t end) const {
  for (size_t i = begin; i < end; ++i) {
    const Kept& kept = outside_[i];
    // Put back from the state before the forward.
    if (i >= plan_->saved && plan_->written[i]) continue;
    const at::Tensor now(kept.tensor.lock());
    if (!kept.version.is_current()) {
      refuse(now.defined() ? now : at::empty({0}), kept.version, {});
    }
    TORCH_CHECK(!now.defined() || now.storage().is_alias_of(kept.storage),
                "A tensor that a captured part used has other memory in the backward than in the forward.");
  }
}

void PartNode::check_saved() const {
  check_outside(0, plan_->saved);
  for (const PartPlan::Read& read : plan_->inputs) {
    if (!input_versions_[read.index].is_current())
      refuse(inputs_[read.index], input_versions_[read.index], read);
  }
  for (size_t i = 0; i < plan_->outputs.size(); ++i) {
    if (output_versions_[i].is_current()) continue;
    const at::Tensor& bound = (*lease_)->bound().tensor((*lease_)->program().results[plan_->outputs[i].index]);
    refuse(bound, output_versions_[i], plan_->outputs[i]);
  }
}

variable_list PartNode::apply(variable_list&& gradients) {
  const std::lock_guard lock(release_mutex_);
  TORCH_CHECK(lease_.has_value(), torch::autograd::ERR_BACKWARD_TWICE);
  const bool create_graph = at::GradMode::is_enabled();
  std::vector<bool> wanted;
  for (size_t i = 0; i < plan_->uses.size(); ++i) wanted.push_back(task_should_compute_output(i));
  check_saved();
  const std::lock_guard part_lock(function_->mutex());
  const std::vector<at::Tensor> arrived = of_outputs(gradients);
  const bool fits = !create_graph && plan_->form->fits(arrived, wanted);
  if (!create_graph) function_->note_gradients(fits, arrived, wanted);
  return fits ? replayed(arrived) : again(arrived, wanted, create_graph);
}

std::vector<at::Tensor> PartNode::of_outputs(const variable_list& gradients) const {
  std::vector<at::Tensor> result;
  size_t next = 0;
  for (const bool has_gradient : plan_->differentiable)
    result.push_back(has_gradient ? gradients[next++] : at::Tensor());
  return result;
}

variable_list PartNode::replayed(const std::vector<at::Tensor>& gradients) {
  counts_->replayed.fetch_add(1, std::memory_order_relaxed);
  const std::vector<at::Tensor>& placeholders = plan_->form->placeholders;
  for (size_t i = 0; i < placeholders.size(); ++i) {
    if (placeholders[i].defined()) copy_elements(placeholders[i], gradients[i]);
  }
  (*lease_)->run_backward();
  return (*lease_)->gradients();
}

// What the forward left behind stays as it is: running statistics, random numbers.
variable_list PartNode::again(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                              bool create_graph) {
  counts_->again.fetch_add(1, std::memory_order_relaxed);
  check_outside(plan_->saved, outside_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!input_versions_[i].is_current()) refuse(inputs_[i], input_versions_[i], {});
  }
  if (create_graph) function_->refuse_second_derivatives();
  const Snapshot left = before_.now();
  before_.restore();
  try {
    variable_list result = function_->again(inputs_, plan_->uses, gradients, wanted, create_graph);
    left.restore();
    return result;
  } catch (...) {
    left.restore();
    throw;
  }
}

void PartNode::release_variables() {
  const std::lock_guard lock(release_mutex_);
  lease_.reset();
  outside_.clear();
  inputs_.clear();
  before_ = Snapshot();
}

void PartNode::release_resources() {
  release_variables();
  HoldingNode::release_resources();
}

}  // namespace overdrive::replay
