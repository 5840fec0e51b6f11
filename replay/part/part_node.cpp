#include "replay/part/part_node.h"

#include "engine/host/gradient_tensors.h"
#include "replay/guard/input_signature.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <ATen/SequenceNumber.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <limits>
#include <map>

namespace overdrive::replay {

namespace {

using base::Edge;
using base::edge_list;
using base::variable_list;
using engine::host::VersionCheck;

// Whether an operator from `begin` to `end` does.
bool touches(const Program& program, int memory, int begin, int end) {
  const auto touches = [&](const Argument& argument) { return program.touches(argument, memory); };
  return std::any_of(
      program.operators.begin() + begin, program.operators.begin() + end,
      [&](const Operator& op) { return !op.vanishes && std::any_of(op.in.begin(), op.in.end(), touches); });
}

// Memory that the forward has made, or read.
bool is_of_forward(const Program& program, const PartFunction& function, size_t index) {
  const Memory& memory = program.memories[index];
  if (memory.origin == Origin::kMade || memory.origin == Origin::kConstant)
    return memory.origin == Origin::kMade && memory.first < program.backward_begins;
  return std::none_of(program.outside.begin(), program.outside.end(), [&](const OutsideTensor& tensor) {
    return program.values[tensor.value].memory == static_cast<int>(index) &&
           function.is_placeholder(tensor.raw);
  });
}

// Note [Order of leaves]: eager's backward runs the node of a leaf as soon as the last gradient for it is
// there, one leaf after the other, and hooks on parameters see this order. A part has all gradients at once,
// and the engine promises no order among nodes of leaves that are ready together. So where a leaf has hooks, a
// node with a number of its own stands for each node of eager's that hands gradients to leaves. Without hooks
// nobody sees the order, and there are none.
class LeafTurn final : public base::Node {
 public:
  explicit LeafTurn(size_t turn) : Node(std::numeric_limits<uint64_t>::max() - 1 - turn) {}
  std::string name() const override { return "CapturedPartLeaf"; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

bool is_leaf_node(const base::Node& node) {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr;
}

void keep_order(edge_list& edges, const std::vector<PartUse>& uses) {
  const bool is_seen = edges.size() > 1 && std::any_of(edges.begin(), edges.end(), [](const Edge& edge) {
                         return edge.is_valid() && is_leaf_node(*edge.function) && has_hooks(*edge.function);
                       });
  base::NodePtr turn;
  int node = -1;
  for (size_t i = 0; is_seen && i < edges.size(); ++i) {
    if (!edges[i].is_valid() || !is_leaf_node(*edges[i].function)) continue;
    if (std::exchange(node, uses[i].node) != uses[i].node) turn = base::make_node<LeafTurn>(i);
    const auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*edges[i].function).variable;
    const uint32_t input = turn->add_input_metadata(leaf);
    turn->add_next_edge(std::move(edges[i]));
    edges[i] = Edge(turn, input);
  }
}

// A backward runs nodes by their numbers, which each thread counts for itself. So a part takes as many as
// eager's nodes. Returns the first of them.
uint64_t take_ranks(uint64_t nodes) {
  const uint64_t first = at::sequence_number::peek();
  for (uint64_t i = 0; i < nodes; ++i) at::sequence_number::get_and_increment();
  return first;
}

// Note [Outputs with nodes of their own]: a hook on an output runs when the node does that made the output.
// Where eager has several such nodes, each has one here, so that the hook of an output without a gradient does
// not run. Behind its edges to the part's node, one for each gradient, it has edges to the nodes of the outputs
// that its own are made of, which carry nothing: so a backward that wants a gradient of those comes by here, as
// eager's does, and is an error.
class OutputNode final : public base::Node, public base::TasklessNode {
 public:
  using Node::Node;
  bool needs_no_task() const override { return true; }
  std::string name() const override { return "CapturedPartOutput"; }
  variable_list apply(variable_list&& gradients) override {
    if (num_outputs() > gradients.size()) {
      const auto is_defined = [](const at::Tensor& gradient) { return gradient.defined(); };
      if (std::any_of(gradients.begin(), gradients.end(), is_defined))
        static_cast<PartNode&>(*next_edge(0).function).refuse_uses_of_feeding_outputs(WantedPaths(), nullptr);
      gradients.resize(num_outputs());
    }
    return std::move(gradients);
  }
};

// A tensor from before the call that is changed later is no longer what the forward read.
[[noreturn]] void refuse(const at::Tensor& tensor, const VersionCheck& version, const PartPlan::Read& read) {
  engine::host::refuse_changed({tensor, tensor.sizes(), version.counter().current_version(),
                                version.saved_version(), read.producer, read.output_nr});
}

}  // namespace

PartPlan::PartPlan(const Program& program, const PartFunction& function)
    : forms(function.forms()), uses(function.uses()), nodes(function.nodes()) {
  for (size_t i = 0; i < program.outputs; ++i) {
    differentiable.push_back(function.is_differentiable(i));
    if (function.is_view(i)) views.push_back(i);
  }
  note_outside(program, function);
  has_state |= program.uses_random_numbers();
  shared_nodes = function.shared_nodes();
  leads = function.leads();
  made_of = function.made_of();
  producers = function.producer_numbers();
  for (size_t i = 0, first = producers.size(); i < producers.size(); ++i) {
    if (!differentiable[i]) continue;
    if (first == producers.size()) first = i;
    has_output_nodes |= producers[i] != producers[first];
  }
  for (size_t i = 0; i < forms->size(); ++i)
    reads.push_back(reads_of(program, function, program.backwards[i], program.end_of_backward(i)));
  any = reads_of(program, function, program.backward_begins, static_cast<int>(program.operators.size()));
  runs_libtorch_alone =
      std::all_of(program.operators.begin() + program.backward_begins, program.operators.end(),
                  [](const Operator& op) { return op.vanishes || op.name.starts_with("aten::"); });
}

void PartPlan::note_outside(const Program& program, const PartFunction& function) {
  for (const OutsideTensor& tensor : program.outside) {
    if (!tensor.lives || function.is_placeholder(tensor.raw)) continue;
    outside.push_back(tensor.raw);
    required.push_back(
        at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(tensor.raw)).requires_grad());
    written.push_back(program.memories[program.values[tensor.value].memory].written);
    bumps.push_back(tensor.version_after - tensor.version_before);
    has_state |= written.back();
  }
}

PartPlan::Reads PartPlan::reads_of(const Program& program, const PartFunction& function, int begin,
                                   int end) const {
  Reads found;
  const auto is_read = [&](int memory) { return touches(program, memory, begin, end); };
  for (const OutsideTensor& tensor : program.outside) {
    if (!tensor.lives || function.is_placeholder(tensor.raw)) continue;
    found.outside.push_back(is_read(program.values[tensor.value].memory));
  }
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin == Origin::kInput && is_read(static_cast<int>(i))) found.inputs.push_back({memory.input});
  }
  for (size_t i = 0; i < program.outputs; ++i) {
    const int value = program.results[i];
    if (value < 0 || !is_read(program.values[value].memory)) continue;
    found.outputs.push_back({static_cast<int>(i), function.producer(i).first, function.producer(i).second});
  }
  found.saves = function.frees_a_function();
  for (size_t i = 0; i < program.memories.size() && !found.saves; ++i)
    found.saves = is_of_forward(program, function, i) && is_read(static_cast<int>(i));
  return found;
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
  keep_order(edges, plan->uses);
  const uint64_t first = take_ranks(plan->nodes);
  const base::NodePtr node =
      base::make_node<PartNode>(first + plan->nodes - 1, std::move(function), plan, std::move(counts),
                                std::move(lease), inputs, std::move(before));
  node->set_next_edges(std::move(edges));
  auto& part = static_cast<PartNode&>(*node);
  part.give_outputs(outputs, node, first);
  if (!plan->any.outputs.empty()) part.output_versions_.resize(outputs.size());
  for (const PartPlan::Read& read : plan->any.outputs)
    part.output_versions_[read.index] = VersionCheck(outputs[read.index]);
  for (const size_t view : plan->views) part.view_versions_.emplace_back(outputs[view]);
}

void PartNode::give_outputs(const std::vector<at::Tensor>& outputs, const base::NodePtr& self, uint64_t first) {
  std::map<uint64_t, base::NodePtr> nodes;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!plan_->differentiable[i]) continue;
    if (!plan_->has_output_nodes) {
      torch::autograd::set_history(outputs[i], self);
      continue;
    }
    base::NodePtr& node = nodes[plan_->producers[i]];
    if (!node) node = base::make_node<OutputNode>(first + plan_->producers[i]);
    node->add_next_edge(Edge(self, self->add_input_metadata(outputs[i])));
    torch::autograd::set_history(outputs[i], node);
  }
  // In the order in which they were made: a node has all of its edges before another one leads to it.
  for (const auto& [number, node] : nodes) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!plan_->differentiable[i] || plan_->producers[i] != number) continue;
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (!plan_->differentiable[k] || !plan_->made_of[i][k]) continue;
        node->add_next_edge(torch::autograd::impl::gradient_edge(outputs[k]));
        feeding_.push_back({base::WeakNodePtr(nodes[plan_->producers[k]]), i});
      }
    }
  }
}

PartNode::PartNode(uint64_t rank, std::shared_ptr<PartFunction> function, std::shared_ptr<const PartPlan> plan,
                   std::shared_ptr<PartCounts> counts, Lease lease, const std::vector<at::Tensor>& inputs,
                   Snapshot before)
    : NodeOfPaths(rank),
      function_(std::move(function)),
      plan_(std::move(plan)),
      counts_(std::move(counts)),
      freed_(plan_->differentiable.size()),
      arrived_(freed_.size()),
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

void PartNode::check_outside(size_t index) const {
  const Kept& kept = outside_[index];
  const at::Tensor now(kept.tensor.lock());
  if (!kept.version.is_current()) refuse(now.defined() ? now : at::empty({0}), kept.version, {});
  TORCH_CHECK(!now.defined() || now.storage().is_alias_of(kept.storage),
              "A tensor that a captured part used has other memory in the backward than in the forward.");
}

void PartNode::check_saved(const PartPlan::Reads& reads) const {
  for (size_t i = 0; i < outside_.size(); ++i) {
    if (reads.outside[i]) check_outside(i);
  }
  for (const PartPlan::Read& read : reads.inputs) {
    if (!input_versions_[read.index].is_current())
      refuse(inputs_[read.index], input_versions_[read.index], read);
  }
  for (const PartPlan::Read& read : reads.outputs) {
    const VersionCheck& version = output_versions_[read.index];
    if (version.is_current()) continue;
    refuse((*lease_)->bound().tensor((*lease_)->program().results[read.index]), version, read);
  }
}

// Eager's error where eager has one. Where it has none, because nodes that it leaves out have saved the tensor,
// the context says why this is one.
void PartNode::check_all() const {
  try {
    check_saved(plan_->any);
    for (size_t i = 0; i < outside_.size(); ++i) {
      // What the forward changes is put back from the state before it.
      if (!plan_->any.outside[i] && !plan_->written[i]) check_outside(i);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!input_versions_[i].is_current()) refuse(inputs_[i], input_versions_[i], {});
    }
  } catch (c10::Error& error) {
    error.add_context(
        "No recording of the captured part has gradients of this form, and its function can only run once more "
        "on what was there in the forward.");
    throw;
  }
}

bool PartNode::leads(size_t gradient, size_t use) const {
  for (size_t i = 0; i < plan_->differentiable.size(); ++i) {
    if (plan_->differentiable[i] && gradient-- == 0) return plan_->leads[i][use];
  }
  return true;
}

std::vector<bool> PartNode::wanted_uses(const WantedPaths& paths) {
  std::vector<bool> wanted(plan_->uses.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = task_should_compute_output(i) && (paths.is_for_all() || paths.lead_from(next_edge(i)));
  return wanted;
}

// Eager's hook sees what comes from the other output, too, and may change it.
void PartNode::refuse_uses_of_feeding_outputs(const WantedPaths& paths,
                                              const std::vector<at::Tensor>* gradients) {
  for (const Feeding& output : feeding_) {
    if (gradients && !(*gradients)[output.fed].defined()) continue;
    const base::NodePtr node = output.node.lock();
    if (!node || !(has_hooks(*node) || paths.captures(*node))) continue;
    function_->refuse_hooks_on_feeding_outputs();
    TORCH_CHECK(false, PartFunction::kHookOnFeedingOutput, " Calls run eagerly from now on.");
  }
}

void PartNode::refuse_needless_nodes(const WantedPaths& paths, const std::vector<bool>& wanted) {
  const auto is_left_out = [&](const std::vector<bool>& leads) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (leads[i] && wanted[i]) return false;
    }
    return true;
  };
  bool any = false;
  for (size_t i = 0; i < plan_->leads.size(); ++i)
    any |= plan_->differentiable[i] && is_left_out(plan_->leads[i]);
  if (paths.is_for_all() || !any) return;
  for (base::Node* node : paths.needless()) {
    const bool is_seen = has_hooks(*node) || is_python_function(*node);
    if (is_seen || dynamic_cast<const OutputNode*>(node) == nullptr) function_->refuse_left_out_outputs();
    TORCH_CHECK(
        !is_seen, PartFunction::kLeftOutOutput, " This backward runs ", node->name(),
        ", which has a hook or is a function of Python, and eager code would not. Calls run eagerly from "
        "now on.");
  }
}

variable_list PartNode::apply(variable_list&& gradients) {
  function_->note_backward();
  const bool keep_graph = !will_release_.exchange(false, std::memory_order_relaxed);
  const std::lock_guard lock(release_mutex_);
  std::vector<at::Tensor> arrived = of_outputs(gradients);
  const bool create_graph = at::GradMode::is_enabled();
  const WantedPaths paths;
  const std::vector<bool> wanted = wanted_uses(paths);
  refuse_uses_of_feeding_outputs(paths, &arrived);
  if (!paths.is_for_all() && std::none_of(wanted.begin(), wanted.end(), [](bool each) { return each; })) {
    arrived_.assign(arrived_.size(), false);  // eager frees nothing
    return variable_list(wanted.size());
  }
  check_freed(arrived, wanted);
  refuse_needless_nodes(paths, wanted);
  // No recording has a backward under other modes than its forward, or under autocast.
  const bool has_other_modes =
      at::autocast::is_autocast_enabled(at::kCPU) || function_->is_under_other_settings();
  const int form = create_graph || has_other_modes ? -1 : index_of_form(*plan_->forms, arrived, wanted);
  if (form >= 0) {
    check_saved(plan_->reads[form]);
  } else if (create_graph || has_other_modes) {
    check_all();
  } else {
    try {
      check_all();
    } catch (...) {
      const std::lock_guard part_lock(function_->mutex());
      function_->note_failed(arrived, wanted);
      throw;
    }
  }
  if (form < 0) engine::show_views(arrived);
  saves_ = form < 0 ? plan_->any.saves : plan_->reads[form].saves;
  saves_for_arrived_ = false;
  if (std::any_of(view_versions_.begin(), view_versions_.end(),
                  [](const VersionCheck& version) { return !version.is_current(); }))
    function_->refuse_changed_views();
  const std::lock_guard part_lock(function_->mutex());
  if (has_other_modes) {
    function_->note_other_modes();
  } else if (!create_graph) {
    function_->note_gradients(arrived, wanted, plan_->forms.get(), form);
  }
  return form < 0 ? again(arrived, wanted, create_graph, keep_graph) : replayed(form, arrived);
}

// Eager asks, and frees, the outputs alone that lead to a tensor that is wanted.
void PartNode::check_freed(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted) {
  const bool all = std::all_of(wanted.begin(), wanted.end(), [](bool each) { return each; });
  bool is_freed = !lease_.has_value();
  for (size_t i = 0; i < gradients.size(); ++i) {
    bool is_asked = all;
    for (size_t use = 0; use < wanted.size() && !is_asked; ++use)
      is_asked = wanted[use] && plan_->leads[i][use];
    arrived_[i] = gradients[i].defined() && is_asked;
    is_freed |= arrived_[i] && freed_[i];
  }
  TORCH_CHECK(!is_freed, torch::autograd::ERR_BACKWARD_TWICE);
}

// The function reads more than its inputs. When it makes other values now, it is not what the gradients are of.
void PartNode::check_same_outputs(const std::vector<at::Tensor>& outputs) const {
  const std::vector<int>& results = (*lease_)->program().results;
  for (size_t i = 0; i < outputs.size() && i < plan_->differentiable.size(); ++i) {
    if (!outputs[i].defined() || results[i] < 0) continue;
    const at::Tensor& before = (*lease_)->bound().tensor(results[i]);
    TORCH_CHECK(before.sizes() == outputs[i].sizes() && before.scalar_type() == outputs[i].scalar_type() &&
                    same_elements(before, outputs[i]),
                "The backward of a captured part needs its function once more, and the function makes other "
                "values now than in the forward: what it reads, a number or the mode of a module, was changed "
                "in between.");
  }
}

std::vector<at::Tensor> PartNode::of_outputs(const variable_list& gradients) const {
  std::vector<at::Tensor> result;
  size_t next = 0;
  for (const bool has_gradient : plan_->differentiable)
    result.push_back(has_gradient ? gradients[next++] : at::Tensor());
  return result;
}

variable_list PartNode::replayed(size_t form, const std::vector<at::Tensor>& gradients) {
  counts_->replayed.fetch_add(1, std::memory_order_relaxed);
  const std::vector<at::Tensor>& placeholders = (*plan_->forms)[form].placeholders;
  for (size_t i = 0; i < placeholders.size(); ++i) {
    if (placeholders[i].defined()) copy_elements(placeholders[i], gradients[i]);
  }
  (*lease_)->run_backward(form);
  return (*lease_)->gradients(form);
}

// What a function that runs once more changes: as before the forward, and as it was at the end of the scope.
class PartNode::PutBack {
 public:
  PutBack(const Snapshot& memories, const std::vector<Kept>& tensors, const PartPlan& plan)
      : left_(memories.now()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (plan.bumps[i] <= 0) continue;
      const c10::VariableVersion& counter = tensors[i].version.counter();
      counters_.emplace_back(counter, counter.current_version());
    }
    memories.restore();
    // Tensors may share one counter, which the first sight of some of them found later.
    for (size_t i = 0; i < tensors.size(); ++i) {
      c10::VariableVersion counter = tensors[i].version.counter();
      const int64_t before = tensors[i].version.saved_version() - plan.bumps[i];
      if (plan.bumps[i] > 0 && before >= 0 && before < counter.current_version()) counter.set_version(before);
    }
  }
  ~PutBack() {
    left_.restore();
    for (auto& [counter, version] : counters_) counter.set_version(version);
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

 private:
  const Snapshot left_;
  std::vector<std::pair<c10::VariableVersion, int64_t>> counters_;
};

// Whether tensors require a gradient: as in the forward, until the end of the scope. Eager's nodes were made in
// the forward, and do not ask again.
class PartNode::FlagsOfForward {
 public:
  FlagsOfForward(const std::vector<at::Tensor>& inputs, const std::vector<Kept>& tensors,
                 const PartPlan& plan) {
    for (const PartUse& use : plan.uses) {
      if (use.input != PartUse::kLeaf) turn(inputs[use.input], true);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor tensor(tensors[i].tensor.lock());
      if (tensor.defined()) turn(tensor, plan.required[i]);
    }
  }
  ~FlagsOfForward() {
    for (at::Tensor& leaf : turned_) leaf.set_requires_grad(!leaf.requires_grad());
  }
  FlagsOfForward(const FlagsOfForward&) = delete;
  FlagsOfForward& operator=(const FlagsOfForward&) = delete;

 private:
  void turn(const at::Tensor& leaf, bool required) {
    if (!leaf.is_leaf() || leaf.requires_grad() == required) return;
    leaf.set_requires_grad(required);
    turned_.push_back(leaf);
  }

  std::vector<at::Tensor> turned_;
};

// What the forward left behind stays as it is: running statistics, random numbers.
variable_list PartNode::again(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                              bool create_graph, bool keep_graph) {
  counts_->again.fetch_add(1, std::memory_order_relaxed);
  // The engine has no copy of the thread's modes where it runs LibTorch's code alone.
  const at::ThreadLocalStateGuard modes_as_they_are{at::ThreadLocalState()};
  if (create_graph) function_->refuse_second_derivatives();
  const PutBack left(before_, outside_, *plan_);
  const FlagsOfForward flags(inputs_, outside_, *plan_);
  // The recorded forms have not shown what this one needs.
  const bool may_free = !create_graph && !keep_graph;
  saves_for_arrived_ = may_free && !plan_->any.saves;
  return function_->again(
      inputs_, plan_->uses, gradients, wanted, create_graph,
      [this](const std::vector<at::Tensor>& outputs) { check_same_outputs(outputs); },
      may_free ? &saves_ : nullptr);
}

// As eager's nodes: those that ran are freed, and another output may have others.
void PartNode::release_variables() {
  {
    const std::lock_guard lock(release_mutex_);
    if (!saves_) return;
    for (size_t i = 0; i < arrived_.size(); ++i) {
      for (size_t k = 0; arrived_[i] && k < freed_.size(); ++k)
        freed_[k] = freed_[k] || (saves_for_arrived_ ? i == k : plan_->shared_nodes[i][k]);
    }
    for (size_t i = 0; i < freed_.size(); ++i) {
      if (plan_->differentiable[i] && !freed_[i]) return;
    }
  }
  let_go();
}

// Tensors may be the last to hold another graph, whose nodes are freed without this one's lock.
void PartNode::let_go() {
  std::optional<Lease> lease;
  std::vector<Kept> outside;
  std::vector<at::Tensor> inputs;
  Snapshot before;
  const std::lock_guard lock(release_mutex_);
  if (lease_) lease.emplace(std::move(*lease_));
  lease_.reset();
  outside.swap(outside_);
  inputs.swap(inputs_);
  std::swap(before, before_);
}

void PartNode::release_resources() {
  let_go();
  HoldingNode::release_resources();
}

}  // namespace overdrive::replay
