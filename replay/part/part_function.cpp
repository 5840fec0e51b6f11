#include "replay/part/part_function.h"

#include "engine/base/tensor_version.h"
#include "replay/part/wanted_paths.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

// A cell that is called in a loop has its first backward late; a function without any is recorded nevertheless.
constexpr uint64_t kCallsWithoutBackward = 256;

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
    : function_(std::move(function)), number_(number) {}

std::vector<at::Tensor> PartFunction::eager(const std::vector<at::Tensor>& inputs) {
  const uint64_t first_node = at::sequence_number::peek();
  std::vector<at::Tensor> outputs = function_(inputs);
  const std::lock_guard lock(mutex_);
  ++calls_;
  feed_others_ = replay::feed_others(outputs, first_node);
  watch_gradients(outputs);
  return outputs;
}

void PartFunction::watch_gradients(const std::vector<at::Tensor>& outputs) {
  view_versions_.clear();
  const auto call = std::make_shared<Watched>();
  call->signatures = forms_.begin_call(outputs.size());
  call->feed_others = feed_others_;
  call->first_outside = at::sequence_number::peek();
  for (const at::Tensor& output : outputs) {
    const base::NodePtr node = output.defined() ? output.grad_fn() : nullptr;
    call->nodes.emplace_back(node);
    call->numbers.push_back(node ? output.output_nr() : 0);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad() || outputs[i].is_leaf()) continue;
    makes_graphs_ = true;
    if (outputs[i].is_view() && !outputs[i].is_inference()) view_versions_.emplace_back(outputs[i]);
    outputs[i].register_hook([part = weak_from_this(), call, i](const at::Tensor& gradient) {
      if (const auto alive = part.lock()) alive->arrived(*call, i, gradient);
    });
  }
}

// Whether a replay's node would run what eager leaves out, or a hook would see less than eager's.
void PartFunction::look_at_outputs(const Watched& call, size_t output) {
  const WantedPaths paths;
  if (call.nodes.size() > 1 && paths.leave_out(call.nodes)) refuse_left_out_outputs();
  const base::NodePtr node = call.nodes[output].lock();
  if (!node || output >= call.feed_others.size() || !call.feed_others[output]) return;
  const auto of_node = [&](const base::WeakNodePtr& each) { return each.lock() == node; };
  const auto ours = std::count_if(call.nodes.begin(), call.nodes.end(), of_node);
  if (static_cast<long>(node->tensor_pre_hooks().size()) > ours || !node->retains_grad_hooks().empty() ||
      !node->pre_hooks().empty() || !node->post_hooks().empty() || paths.captures(*node))
    refuse_hooks_on_feeding_outputs();
}

void PartFunction::arrived(const Watched& call, size_t output, const at::Tensor& gradient) {
  note_backward();
  const std::lock_guard lock(mutex_);
  look_at_outputs(call, output);
  if (at::GradMode::is_enabled()) refuse_second_derivatives();
  if (!gradient.defined() || !is_ordinary(gradient)) return;
  // What is seen in calls after the first is compared when a replay meets it.
  if (forms_.recorded()) return;
  any_seen_ = true;
  // The gradient comes from another output; what nobody uses has none from outside.
  if (is_used_inside_alone(call, output)) return;
  (*call.signatures)[output] = InputSignature({gradient.detach()}, 0);
}

bool PartFunction::is_used_inside_alone(const Watched& call, size_t output) {
  if (output >= call.feed_others.size() || !call.feed_others[output]) return false;
  const base::NodePtr node = call.nodes[output].lock();
  return !node || !leads_from_later(base::Edge(node, call.numbers[output]), call.first_outside);
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

void PartFunction::refuse_hooks_on_feeding_outputs() {
  const std::lock_guard lock(mutex_);
  refuse(kHookOnFeedingOutput);
}

void PartFunction::refuse_left_out_outputs() {
  const std::lock_guard lock(mutex_);
  refuse(kLeftOutOutput);
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

void PartFunction::give_casts(size_t inputs, std::vector<KeptCast> casts) {
  const std::lock_guard lock(mutex_);
  inputs_before_casts_ = inputs;
  casts_ = std::move(casts);
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
  const std::vector<PartGradients::Before> gradients = gradients_.before(inputs);
  std::vector<int64_t> versions;
  for (const at::Tensor& input : inputs) versions.push_back(base::version_of(input));
  std::vector<at::Tensor> results = function_(inputs);
  nodes_ = at::sequence_number::peek() - first_node;
  feed_others_ = replay::feed_others(results, first_node);
  made_of_ = replay::made_of(results, first_node);
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
    // As an activation in place, whose result is its input. With other results the program itself tells.
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (at::GradMode::is_enabled() && inputs[i].requires_grad() && base::version_of(inputs[i]) != versions[i])
        recorder.refuse(kChangesInput);
    }
    if (std::string reason = refusal_of_tensors(results, {}); !reason.empty())
      recorder.refuse(std::move(reason));
    return results;
  }
  outputs_ = results;
  if (std::string reason = gradients_.note(gradients, recorder); !reason.empty() && !leaves_gradient)
    recorder.refuse(std::move(reason));
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
  note_outputs(results, first_node);
  uses_ = graph.uses();
  shared_nodes_ = graph.shared_nodes();
  leads_ = graph.leads();
  frees_a_function_ = graph.frees_a_function();
  inner_leaves_.clear();
  for (const at::Tensor& leaf : graph.inner_leaves()) inner_leaves_.emplace_back(leaf.getIntrusivePtr());
  make_placeholders(results);
  const size_t outputs = results.size();
  // A backward is called outside of the context, or runs the function once more (PartNode).
  const AutocastMode::Scope without_autocast(AutocastMode::off());
  try {
    for (const PartForm& form : *forms_.recorded()) {
      recorder.begin_backward(outputs, form.placeholders);
      for (at::Tensor& gradient :
           graph.pull(form.placeholders, form.wanted, /*keep_graph=*/true, /*create_graph=*/false)) {
        results.push_back(std::move(gradient));
      }
    }
  } catch (const std::exception& error) {  // the caller's to see, in a backward of its own
    recorder.refuse(c10::str("The backward of the part throws: ", first_line(error.what())));
  }
  return results;
}

void PartFunction::note_outputs(const std::vector<at::Tensor>& outputs, uint64_t first_node) {
  differentiable_.clear();
  producers_.clear();
  producer_numbers_.clear();
  views_.clear();
  for (const at::Tensor& output : outputs) {
    differentiable_.push_back(output.defined() && output.requires_grad());
    views_.push_back(differentiable_.back() && output.is_view());
    const base::NodePtr node = output.defined() ? output.grad_fn() : nullptr;
    producers_.emplace_back(engine::host::producer_name(node.get()), node ? output.output_nr() : 0);
    producer_numbers_.push_back(node ? node->sequence_nr() - first_node : 0);
  }
}

std::optional<std::vector<at::Tensor>> PartFunction::take_outputs() {
  if (outputs_) watch_gradients(*outputs_);
  return std::exchange(outputs_, std::nullopt);
}

void PartFunction::make_placeholders(const std::vector<at::Tensor>& outputs) {
  const auto& known = forms_.recorded();
  const bool is_known = known && known->front().placeholders.size() == outputs.size() &&
                        known->front().wanted.size() == uses_.size();
  if (is_known && !wants_recording_) return;
  const Unrecorded scope;
  const at::NoGradGuard no_graph;
  wants_recording_ = false;
  forms_.choose(outputs, differentiable_, uses_.size(), any_seen_);
  forms_.refill();
}

void PartFunction::refill() {
  const Unrecorded scope;
  const at::NoGradGuard no_graph;
  forms_.refill();
}

void PartFunction::note_gradients(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                                  const PartForms* of_the_call, int form) {
  // The present forms may be others than those of the call.
  if (of_the_call != forms_.recorded().get()) form = index_of_form(*forms_.recorded(), gradients, wanted);
  if (form >= 0) return forms_.hit(form);
  const bool ordinary = std::all_of(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
    return !gradient.defined() || is_ordinary(gradient);
  });
  if (!ordinary) {
    if (forms_.missed_extraordinary() == MetForms::Wish::kRefusal)
      refuse("The gradients of the outputs are not ordinary dense tensors in nearly every backward.");
    return;
  }
  any_seen_ = true;
  const MetForms::Wish wish = forms_.missed(gradients, wanted);
  if (wish == MetForms::Wish::kNothing) return;
  wants_recording_ = true;
  if (wish == MetForms::Wish::kRefusal)
    refuse("The gradients of the outputs arrive in other sizes, strides or choices in nearly every backward.");
}

void PartFunction::note_failed(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted) {
  note_gradients(gradients, wanted, nullptr, -1);
  if (any_seen_) wants_recording_ = true;
}

void PartFunction::note_other_modes() {
  if (forms_.missed_extraordinary() != MetForms::Wish::kRefusal) return;
  refuse(is_under_other_settings()
             ? "Nearly every backward runs under other settings than the forward (deterministic algorithms, "
               "precision, "
               "backends); call backward() where they are those of the forward."
             : "Nearly every backward runs under autocast; call backward() outside of the context.");
}

// Eager's backward leaves none, and what comes in the same context would take them for the weights of then.
void PartFunction::drop_new_casts(const PartGraph& graph, const std::vector<at::Tensor>& given,
                                  uint64_t first_node) const {
  const AutocastMode::Scope as_in_the_forward(autocast_);
  bool any = graph.leaves_casts();
  for (size_t i = inputs_before_casts_; i < given.size() && !casts_.empty(); ++i) {
    const base::NodePtr node = given[i].defined() ? given[i].grad_fn() : nullptr;
    any |= node && node->sequence_nr() >= first_node;
  }
  if (any) at::autocast::clear_cache();
}

std::vector<at::Tensor> PartFunction::again(const std::vector<at::Tensor>& inputs,
                                            const std::vector<PartUse>& uses,
                                            const std::vector<at::Tensor>& gradients,
                                            const std::vector<bool>& wanted, bool create_graph,
                                            const std::function<void(const std::vector<at::Tensor>&)>& check,
                                            bool* frees) const {
  const at::AutoGradMode with_graph(true);
  const uint64_t first_node = at::sequence_number::peek();
  std::vector<at::Tensor> given = inputs;
  const std::vector<at::Tensor> outputs = [&] {
    const RunningAgain scope(number_);
    const AutocastMode::Scope as_in_the_forward(autocast_);
    const KernelSettingsScope set_as_in_the_forward(settings_);
    const PartGradients::PutBack gradients_as_they_are(gradients_, inputs);
    std::vector<at::Tensor> casts = made_casts(casts_);
    for (size_t i = 0; i < casts.size() && inputs_before_casts_ + i < given.size(); ++i)
      given[inputs_before_casts_ + i] = std::move(casts[i]);
    return function_(given);
  }();
  check(outputs);
  const auto is_inner = [&](const at::Tensor& leaf) {
    return std::none_of(uses.begin(), uses.end(),
                        [&](const PartUse& use) { return use.leaf == leaf.unsafeGetTensorImpl(); });
  };
  const PartGraph graph(outputs, given, first_node, is_inner);
  TORCH_CHECK(
      graph.refusal().empty() && graph.uses() == uses,
      "The backward of a captured part needs its function once more, and the function makes another graph now "
      "than in the forward: what it reads was changed in between. ",
      graph.refusal());
  if (is_in_autocast_context()) drop_new_casts(graph, given, first_node);
  std::vector<at::Tensor> result = graph.pull(gradients, wanted, create_graph, create_graph);
  if (!frees) return result;
  try {
    (void)graph.pull(gradients, wanted, /*keep_graph=*/false, /*create_graph=*/false);
    *frees = false;
  } catch (const c10::Error&) {
    *frees = true;
  }
  return result;
}

}  // namespace overdrive::replay
