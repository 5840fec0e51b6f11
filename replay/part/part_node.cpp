#include "replay/part/part_node.h"

#include "replay/guard/outside_guard.h"

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

// Note [Hooks behind a part]
// In eager a leaf's node runs as soon as the node before it has its gradient, so that hooks of parameters, and
// a reducer's, see them one after the other from the last layer to the first. The gradients of a part are ready
// at once, and a heap of equal nodes has no order. Where a leaf has hooks, one relay stands behind the part for
// each of eager's nodes that had an edge to a leaf: the first gives its gradients away and then wakes the next
// one, whose rank is below that of leaves.
class Relay final : public base::Node {
 public:
  Relay(std::shared_ptr<Relayed> relayed, size_t begin, size_t end, bool is_last)
      : relayed_(std::move(relayed)), begin_(begin), end_(end), is_last_(is_last) {
    add_input_metadata(Node::undefined_input());
  }

  std::string name() const override { return "CapturedPartRelay"; }
  variable_list apply(variable_list&&) override {
    const bool ends_here = is_last_ || !task_should_compute_output(0);
    variable_list gradients =
        relayed_->take(torch::autograd::get_current_graph_task_id(), begin_, end_, ends_here);
    if (!is_last_) gradients.insert(gradients.begin(), at::Tensor());
    return gradients;
  }

 private:
  const std::shared_ptr<Relayed> relayed_;
  const size_t begin_;
  const size_t end_;
  const bool is_last_;
};

void Relayed::put(int backward, variable_list gradients) {
  const std::lock_guard lock(mutex_);
  gradients_[backward] = std::move(gradients);
}

variable_list Relayed::take(int backward, size_t begin, size_t end, bool is_last) {
  const std::lock_guard lock(mutex_);
  const auto found = gradients_.find(backward);
  TORCH_INTERNAL_ASSERT(found != gradients_.end(), "A relay runs before its part.");
  variable_list taken;
  for (size_t i = begin; i < end; ++i) taken.push_back(std::move(found->second[i]));
  if (is_last) gradients_.erase(found);
  return taken;
}

PartPlan::PartPlan(const Program& program, const PartFunction& function)
    : form(function.form()), uses(function.uses()) {
  for (PartUse& use : uses) {
    const bool is_outside =
        std::any_of(program.outside.begin(), program.outside.end(),
                    [&](const OutsideTensor& each) { return each.lives && each.raw == use.leaf; });
    if (!is_outside) use.leaf = nullptr;
    seen.push_back(!use.leads_nowhere());
  }
  is_watched = std::any_of(uses.begin(), uses.end(), [](const PartUse& use) {
    return use.leaf && HookLooks::of(*use.leaf) != HookLooks();
  });
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
    if (use.leads_nowhere()) {
      edges.emplace_back();
      continue;
    }
    if (use.input != PartUse::kLeaf) {
      edges.push_back(torch::autograd::impl::gradient_edge(inputs[use.input]));
      continue;
    }
    const at::Tensor leaf(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(use.leaf));
    edges.push_back(torch::autograd::impl::gradient_edge(leaf));
  }
  const base::NodePtr node = base::make_node<PartNode>(std::move(function), plan, std::move(counts),
                                                       std::move(lease), inputs, std::move(before));
  auto& part = static_cast<PartNode&>(*node);
  part.add_edges(std::move(edges));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (plan->differentiable[i]) torch::autograd::set_history(outputs[i], node);
  }
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

void PartNode::add_edges(edge_list edges) {
  const std::vector<PartUse>& uses = plan_->uses;
  if (!plan_->is_watched || uses.back().node == 0) return set_next_edges(std::move(edges));
  relayed_ = std::make_shared<Relayed>();
  base::NodePtr next;
  size_t end = uses.size();
  while (end > 0) {
    size_t begin = end;
    while (begin > 0 && uses[begin - 1].node == uses[end - 1].node) --begin;
    edge_list own;
    if (next) own.emplace_back(next, 0);
    for (size_t i = begin; i < end; ++i) own.push_back(std::move(edges[i]));
    if (begin == 0) {
      first_relayed_ = end;
      return set_next_edges(std::move(own));
    }
    base::NodePtr relay = base::make_node<Relay>(relayed_, begin, end, !next);
    relay->set_next_edges(std::move(own));
    next = std::move(relay);
    end = begin;
  }
}

// Of each use, wherever its edge is.
std::vector<bool> PartNode::wanted() const {
  std::vector<bool> result;
  const base::Node* node = this;
  while (result.size() < plan_->uses.size()) {
    const bool has_next = relayed_ && dynamic_cast<const Relay*>(node->next_edge(0).function.get());
    for (size_t i = has_next ? 1 : 0; i < node->num_outputs(); ++i)
      result.push_back(!plan_->seen[result.size()] || node->task_should_compute_output(i));
    node = has_next ? node->next_edge(0).function.get() : nullptr;
  }
  return result;
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
  const std::vector<bool> those = wanted();
  check_saved();
  const std::lock_guard part_lock(function_->mutex());
  const std::vector<at::Tensor> arrived = of_outputs(gradients);
  const bool fits = !create_graph && plan_->form->fits(arrived, those);
  if (!create_graph) function_->note_gradients(fits, arrived, those);
  variable_list result = fits ? replayed(arrived) : again(arrived, those, create_graph);
  if (!relayed_) return result;
  variable_list own(result.begin(), result.begin() + static_cast<ptrdiff_t>(first_relayed_));
  own.insert(own.begin(), at::Tensor());
  for (size_t i = 0; i < first_relayed_; ++i) result[i].reset();
  if (task_should_compute_output(0))
    relayed_->put(torch::autograd::get_current_graph_task_id(), std::move(result));
  return own;
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
  return (*lease_)->gradients(plan_->seen);
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
