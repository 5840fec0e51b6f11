#include "replay/part/part_function.h"

#include "replay/record/refusals.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SequenceNumber.h>

namespace overdrive::replay {

namespace {

// A cell that is called in a loop has its first backward late; a function without any is recorded nevertheless.
constexpr uint64_t kCallsWithoutBackward = 256;
// Of gradients in turn: another form is recorded so often, and no more.
constexpr uint64_t kMostForms = 8;

// Operators in between are no part of the recording.
struct Unrecorded {
  Unrecorded() { Recorder::pause(true); }
  ~Unrecorded() { Recorder::pause(false); }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
};

thread_local const int64_t* number_of_run = nullptr;

struct RunningAgain {
  explicit RunningAgain(const int64_t& number) : before(std::exchange(number_of_run, &number)) {}
  ~RunningAgain() { number_of_run = before; }
  RunningAgain(const RunningAgain&) = delete;
  RunningAgain& operator=(const RunningAgain&) = delete;
  const int64_t* const before;
};

// A sparse one and a conjugated view are not; their bytes alone do not tell what they are.
bool is_ordinary(const at::Tensor& gradient) { return refusal_of(gradient, "").empty(); }

// A tensor that looks so.
at::Tensor made(const InputLooks& looks) {
  const size_t element = c10::elementSize(looks.type);
  const size_t bytes = end_of(looks.sizes, looks.strides, looks.alignment / element, element);
  const at::TensorOptions options = at::TensorOptions(looks.type);
  const at::Tensor memory = at::empty({static_cast<int64_t>(bytes / element)}, options);
  return memory.as_strided(looks.sizes, looks.strides, looks.alignment / element);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string refusal_of_tensors(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  for (const at::Tensor& input : inputs) {
    if (input.is_inference())
      return "An input was made in inference mode and has no version; give its clone().";
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t k = 0; k < i && outputs[i].defined(); ++k) {
      if (outputs[k].defined() && outputs[k].has_storage() && outputs[i].has_storage() &&
          outputs[k].storage().is_alias_of(outputs[i].storage()))
        return "Two outputs share memory, and the graph would not know of a write to one of them; return a "
               "clone().";
    }
  }
  return "";
}

}  // namespace

PartFunction::PartFunction(Function function, int64_t number)
    : function_(std::move(function)), number_(number), generator_(at::detail::createCPUGenerator(20261123)) {}

std::vector<at::Tensor> PartFunction::eager(const std::vector<at::Tensor>& inputs) {
  const uint64_t first_node = at::sequence_number::peek();
  std::vector<at::Tensor> outputs = function_(inputs);
  const std::lock_guard lock(mutex_);
  ++calls_;
  feed_others_ = feed_others(outputs, first_node);
  watch_gradients(outputs);
  return outputs;
}

void PartFunction::watch_gradients(const std::vector<at::Tensor>& outputs) {
  view_versions_.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad() || outputs[i].is_leaf()) continue;
    makes_graphs_ = true;
    if (outputs[i].is_view() && !outputs[i].is_inference()) view_versions_.emplace_back(outputs[i]);
    outputs[i].register_hook([part = weak_from_this(), i](const at::Tensor& gradient) {
      if (const auto alive = part.lock()) alive->arrived(i, gradient);
    });
  }
}

void PartFunction::arrived(size_t output, const at::Tensor& gradient) {
  const std::lock_guard lock(mutex_);
  if (at::GradMode::is_enabled()) refuse_second_derivatives();
  if (!gradient.defined() || !is_ordinary(gradient)) return;
  // What is seen in calls after the first is compared when a replay meets it.
  if (form_) return;
  any_seen_ = true;
  // The gradient comes from another output; what nobody uses has none from outside.
  if (output < feed_others_.size() && feed_others_[output]) return;
  if (seen_.looks.size() <= output) seen_.looks.resize(output + 1);
  seen_.looks[output] = InputLooks({gradient.detach()}, 0);
}

// The graph of a gradient leads into the nodes of the function, of which a replay has none.
void PartFunction::refuse_second_derivatives() {
  refuse(
      "A backward with create_graph ran through the part, whose graph a replay does not have; calls run "
      "eagerly.");
  wants_recording_ = true;
}

void PartFunction::refuse(std::string reason) {
  if (is_refused()) return;
  refusal_ = std::move(reason);
  is_refused_.store(true, std::memory_order_release);
}

// Note [Outputs that are views]: a change in place of a view makes eager rewrite the graph of the view and its
// base, and gradients then come to the base with other strides, by which kernels round differently. An output
// of a replay is no view. So a part whose outputs are changed like that is refused.
void PartFunction::refuse_changed_views() {
  const std::lock_guard lock(mutex_);
  refuse(
      "An output is a view (of view(), t(), a slice), and is changed in place after the call; return a clone() "
      "of "
      "it, or change a copy.");
}

void PartFunction::look_at_views() {
  const bool changed = std::any_of(view_versions_.begin(), view_versions_.end(),
                                   [](const auto& version) { return !version.is_current(); });
  view_versions_.clear();
  if (changed) refuse_changed_views();
}

bool PartFunction::is_running_again() { return number_of_run != nullptr; }

int64_t PartFunction::running_again() { return number_of_run ? *number_of_run : -1; }

bool PartFunction::is_leaf_held() const {
  return std::any_of(inner_leaves_.begin(), inner_leaves_.end(),
                     [](const WeakTensor& leaf) { return !leaf.expired(); });
}

bool PartFunction::knows_gradients() const {
  return any_seen_ || !makes_graphs_ || calls_ >= kCallsWithoutBackward;
}

std::vector<at::Tensor> PartFunction::record(const std::vector<at::Tensor>& inputs) {
  outputs_.reset();
  const uint64_t first_node = at::sequence_number::peek();
  std::vector<at::Tensor> results = function_(inputs);
  nodes_ = at::sequence_number::peek() - first_node;
  const bool has_graph = std::any_of(results.begin(), results.end(), [](const at::Tensor& each) {
    return each.defined() && each.requires_grad();
  });
  Recorder& recorder = *Recorder::active();
  const bool leaves_gradient = recorder.leaves_new_gradient();
  if (leaves_gradient) {
    recorder.refuse(
        "The function calls backward() and leaves gradients that were not there; call zero_grad(false) "
        "(Python: "
        "set_to_none=False) in the program, or return the gradients of grad().");
  }
  if (!has_graph) {
    if (std::string reason = refusal_of_tensors(results, {}); !reason.empty())
      recorder.refuse(std::move(reason));
    return results;
  }
  outputs_ = results;
  if (leaves_gradient) return results;
  const PartGraph graph(results, inputs, first_node,
                        [&](const at::Tensor& leaf) { return !recorder.knows_outside(leaf); });
  for (const std::string& reason : {graph.refusal(), graph.refusal_of_lonely_outputs()}) {
    if (reason.empty()) continue;
    recorder.refuse(reason);
    return results;
  }
  if (std::string reason = refusal_of_tensors(results, inputs); !reason.empty()) {
    recorder.refuse(std::move(reason));
    return results;
  }
  note_outputs(results);
  uses_ = graph.uses();
  shared_nodes_ = graph.shared_nodes();
  frees_a_function_ = graph.frees_a_function();
  inner_leaves_.clear();
  for (const at::Tensor& leaf : graph.inner_leaves()) inner_leaves_.emplace_back(leaf.getIntrusivePtr());
  make_placeholders(results);
  const std::vector<at::Tensor>& placeholders = form_->placeholders;
  recorder.begin_backward(results.size(), placeholders);
  try {
    for (at::Tensor& gradient :
         graph.pull(placeholders, form_->wanted, /*keep_graph=*/true, /*create_graph=*/false)) {
      results.push_back(std::move(gradient));
    }
  } catch (const std::exception& error) {  // the caller's to see, in a backward of its own
    recorder.refuse(c10::str("The backward of the part throws: ", first_line(error.what())));
  }
  return results;
}

void PartFunction::note_outputs(const std::vector<at::Tensor>& outputs) {
  differentiable_.clear();
  producers_.clear();
  views_.clear();
  for (const at::Tensor& output : outputs) {
    differentiable_.push_back(output.defined() && output.requires_grad());
    views_.push_back(differentiable_.back() && output.is_view());
    const base::NodePtr node = output.defined() ? output.grad_fn() : nullptr;
    producers_.emplace_back(engine::host::producer_name(node.get()), node ? output.output_nr() : 0);
  }
}

bool PartFunction::is_placeholder(const c10::TensorImpl* tensor) const {
  return std::any_of(form_->placeholders.begin(), form_->placeholders.end(),
                     [&](const at::Tensor& each) { return each.unsafeGetTensorImpl() == tensor; });
}

std::optional<std::vector<at::Tensor>> PartFunction::take_outputs() {
  if (outputs_) watch_gradients(*outputs_);
  return std::exchange(outputs_, std::nullopt);
}

void PartFunction::make_placeholders(const std::vector<at::Tensor>& outputs) {
  const bool is_known =
      form_ && form_->placeholders.size() == outputs.size() && form_->wanted.size() == uses_.size();
  if (is_known && !wants_recording_) return;
  const Unrecorded scope;
  const at::NoGradGuard no_graph;
  wants_recording_ = false;
  hits_ = misses_ = 0;
  auto form = std::make_shared<PartForm>();
  form->looks.resize(outputs.size());
  form->placeholders.resize(outputs.size());
  form->wanted = seen_.wanted.size() == uses_.size() ? seen_.wanted : std::vector<bool>(uses_.size(), true);
  seen_.looks.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::optional<InputLooks>& looks = form->looks[i];
    if (!differentiable_[i]) continue;
    if (seen_.looks[i] && seen_.looks[i]->sizes == outputs[i].sizes()) {
      looks = seen_.looks[i];
    } else if (!any_seen_ || seen_.looks[i]) {
      looks = InputLooks({at::empty(outputs[i].sizes(), at::TensorOptions(outputs[i].scalar_type()))}, 0);
    }
    if (looks) form->placeholders[i] = made(*looks);
  }
  form_ = std::move(form);
  refill();
}

void PartFunction::refill() {
  const Unrecorded scope;
  const at::NoGradGuard no_graph;
  for (const at::Tensor& placeholder : form_ ? form_->placeholders : std::vector<at::Tensor>()) {
    if (!placeholder.defined()) continue;
    // Elements of an expanded gradient share memory.
    const auto count = static_cast<int64_t>(placeholder.storage().nbytes() / placeholder.element_size());
    const auto type = at::isComplexType(placeholder.scalar_type()) ? at::kComplexDouble : at::kDouble;
    const at::Tensor numbers = at::empty({count}, at::TensorOptions(type)).normal_(0, 1, generator_);
    at::empty({0}, placeholder.options()).set_(placeholder.storage(), 0, {count}, {1}).copy_(numbers);
  }
}

bool PartForm::fits(const std::vector<at::Tensor>& gradients, const std::vector<bool>& those_wanted) const {
  if (those_wanted != wanted || gradients.size() != looks.size()) return false;
  for (size_t i = 0; i < looks.size(); ++i) {
    if (looks[i].has_value() != gradients[i].defined()) return false;
    if (looks[i] && !(is_ordinary(gradients[i]) && looks[i]->fits({gradients[i]}, 0))) return false;
  }
  return true;
}

void PartFunction::note_gradients(bool fit, const std::vector<at::Tensor>& gradients,
                                  const std::vector<bool>& wanted) {
  ++(fit ? hits_ : misses_);
  if (fit) return;
  const bool ordinary = std::all_of(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
    return !gradient.defined() || is_ordinary(gradient);
  });
  if (!ordinary) {
    if (misses_ > hits_ && ++new_forms_ > kMostForms)
      refuse("The gradients of the outputs are not ordinary dense tensors in nearly every backward.");
    return;
  }
  any_seen_ = true;
  seen_.wanted = wanted;
  seen_.looks.assign(gradients.size(), std::nullopt);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) seen_.looks[i] = InputLooks({gradients[i].detach()}, 0);
  }
  if (misses_ <= hits_) return;
  wants_recording_ = true;
  if (++new_forms_ > kMostForms)
    refuse("The gradients of the outputs arrive in other sizes, strides or choices in nearly every backward.");
}

std::vector<at::Tensor> PartFunction::again(
    const std::vector<at::Tensor>& inputs, const std::vector<PartUse>& uses,
    const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted, bool create_graph,
    const std::function<void(const std::vector<at::Tensor>&)>& check) const {
  const at::AutoGradMode with_graph(true);
  const uint64_t first_node = at::sequence_number::peek();
  const std::vector<at::Tensor> outputs = [&] {
    const RunningAgain scope(number_);
    return function_(inputs);
  }();
  check(outputs);
  const auto is_inner = [&](const at::Tensor& leaf) {
    return std::none_of(uses.begin(), uses.end(),
                        [&](const PartUse& use) { return use.leaf == leaf.unsafeGetTensorImpl(); });
  };
  const PartGraph graph(outputs, inputs, first_node, is_inner);
  TORCH_CHECK(graph.refusal().empty() && graph.uses() == uses,
              "A captured part makes another graph in the backward than it did in the forward. ",
              graph.refusal());
  return graph.pull(gradients, wanted, create_graph, create_graph);
}

}  // namespace overdrive::replay
