#include "replay/record/recorder.h"

#include "engine/base/no_destructor.h"
#include "engine/base/tensor_version.h"
#include "engine/operators/keys.h"
#include "engine/operators/tensors_in.h"
#include "replay/record/active_recorder.h"
#include "replay/record/apart_call.h"
#include "replay/record/kept_casts.h"
#include "replay/record/lazy_bits.h"
#include "replay/record/refusals.h"

#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/enum_tag.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

namespace overdrive::replay {

namespace {

constexpr auto kKey = engine::keys::kRecording;

// Operators of recordings that ran on other threads: state that a recording carries to a thread includes the
// key.
std::atomic<uint64_t> foreign_operators{0};
std::atomic<void (*)(const char*)> refusal_listener{nullptr};
thread_local void (*operator_listener)(const char*) = nullptr;

void fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, c10::Stack* stack) {
  // Operators that a kernel calls in turn are a part of the kernel.
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
  const auto next = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (Recorder* recorder = Recorder::active()) {
    recorder->operator_called(handle, next, *stack);
  } else {
    foreign_operators.fetch_add(1, std::memory_order_relaxed);
    handle.redispatchBoxed(next, stack);
  }
}

void register_fallback() {
  static const base::NoDestructor<torch::Library> library([] {
    engine::keys::claim(kKey);
    torch::Library made(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    return made;
  }());
}

std::string full_name(const c10::OperatorHandle& handle) {
  const auto& name = handle.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_factory_without_values(const std::string& name) {
  return name.starts_with("aten::empty.") || name == "aten::empty_like" || name == "aten::empty_strided" ||
         name == "aten::new_empty" || name == "aten::new_empty_strided";
}

// Zeros without memory, as tangents are, or a tensor on the device meta, by which LibTorch finds their sizes.
bool is_without_memory(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         (value.toTensor()._is_zerotensor() || value.toTensor().is_meta());
}

// Operators that read such a result have had it made, or have left it out, above the key: a replay needs none.
bool makes_no_memory(const c10::FunctionSchema& schema, const c10::Stack& stack) {
  const auto results = torch::jit::last(stack, schema.returns().size());
  return !schema.is_mutable() && !results.empty() &&
         std::all_of(results.begin(), results.end(), is_without_memory);
}

// By these LibTorch finds the sizes of results, also with operators of other libraries (prims).
bool is_of_sizes_alone(const c10::FunctionSchema& schema, const c10::Stack& stack) {
  bool any = false;
  for (const c10::IValue& value : torch::jit::last(stack, schema.arguments().size())) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (!value.toTensor().is_meta()) return false;
    any = true;
  }
  return any && !schema.is_mutable();
}

// Composite operators are above the key. LibTorch tells their names and arguments to observers.
std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  Recorder* recorder = Recorder::active();
  // Below the key of autocast, which hides itself from the operators that it calls, nobody knows any more.
  if (recorder && at::autocast::is_autocast_enabled(at::kCPU)) recorder->note_autocast();
  const auto schema = function.operator_schema();
  if (!recorder || !schema) return nullptr;
  if (!schema->is_mutable())
    engine::for_each_input(function, [&](const at::Tensor& tensor) { recorder->note_given(tensor); });
  return recorder->passed_numbers().begin_operator(function);
}

std::unique_ptr<at::ObserverContext> observe_node(const at::RecordFunction& function) {
  Recorder* recorder = Recorder::active();
  return recorder ? recorder->passed_numbers().begin_node(function) : nullptr;
}

// Of an input, as it was before the call.
class GradientOfInput {
 public:
  explicit GradientOfInput(const at::Tensor& input) {
    if (!input.requires_grad() || !input.is_leaf() || !input.grad().defined()) return;
    before_.emplace(input.grad().getIntrusivePtr());
    version_ = base::version_of(input.grad());
  }
  bool is_left_alone(const at::Tensor& input) const {
    if (!input.is_leaf()) return true;
    const at::Tensor& now = input.grad();
    if (!now.defined() || !before_) return now.defined() == before_.has_value();
    return now.unsafeGetTensorImpl() == before_->_unsafe_get_target() &&
           (now.is_inference() || now._version() == version_);
  }

 private:
  std::optional<WeakTensor> before_;
  int64_t version_ = 0;
};

// Whether the thread's operators are noted, undone at the end of the scope.
struct ThreadRecording {
  explicit ThreadRecording(Recorder* recorder)
      : observer(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&observe).needsInputs(true).scopes({at::RecordScope::FUNCTION}))),
        // Without its inputs: a node that finds a second reference to a gradient does not keep it.
        of_nodes(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&observe_node).scopes({at::RecordScope::BACKWARD_FUNCTION}))) {
    exchange_active_recorder(recorder);
  }
  ~ThreadRecording() {
    exchange_active_recorder(nullptr);
    at::removeCallback(of_nodes);
    at::removeCallback(observer);
  }
  ThreadRecording(const ThreadRecording&) = delete;
  ThreadRecording& operator=(const ThreadRecording&) = delete;
  const at::CallbackHandle observer;
  const at::CallbackHandle of_nodes;
  c10::impl::IncludeDispatchKeyGuard included{kKey};
};

}  // namespace

Recorder::Recorder(Program& program, const std::vector<LeafGradient>& leaves)
    : program_(program), leaves_(leaves), environment_(Environment::now()) {
  TORCH_INTERNAL_ASSERT(!active_recorder(), "A recording is under way on this thread.");
  register_fallback();
  foreign_before_ = foreign_operators.load(std::memory_order_relaxed);
}

Recorder::~Recorder() = default;

Recorder* Recorder::active() { return active_recorder(); }

void Recorder::pause(bool paused) {
  if (active_recorder()) c10::impl::tls_set_dispatch_key_included(kKey, !paused);
}

std::vector<at::Tensor> Recorder::apart(const std::shared_ptr<ApartFunction>& function,
                                        const std::vector<at::Tensor>& inputs) {
  const c10::impl::IncludeDispatchKeyGuard noted(kKey);
  const auto place = static_cast<int64_t>(program_.aparts.size());
  program_.aparts.push_back(function);
  c10::Stack stack{place, inputs};
  apart_operator().callBoxed(&stack);
  if (ApartTape::active()->take_changed())
    refuse(
        "A function that runs apart changes a tensor that the step uses; let it return a tensor, and let the "
        "step copy "
        "that (copy_).");
  return stack.back().toTensorVector();
}

void Recorder::on_refusal(void (*listener)(const char* reason)) {
  refusal_listener.store(listener, std::memory_order_relaxed);
}

void Recorder::on_operator(void (*listener)(const char* name)) { operator_listener = listener; }

void Recorder::refuse(Refusal refusal) {
  if (auto* listener = refusal_listener.load(std::memory_order_relaxed)) listener(refusal.text.c_str());
  if (program_.refusal.empty()) program_.refusal = std::move(refusal);
}

std::vector<at::Tensor> Recorder::run(const Function& function, const std::vector<at::Tensor>& inputs) {
  std::vector<int64_t> versions;
  std::vector<bool> required;
  const std::vector<GradientOfInput> gradients(inputs.begin(), inputs.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    versions.push_back(base::version_of(inputs[i]));
    required.push_back(inputs[i].requires_grad());
    program_.inputs.emplace_back(inputs[i].getIntrusivePtr());
    note_input(inputs[i], static_cast<int>(i));
  }
  std::vector<at::Tensor> results;
  {
    const ThreadRecording recording(this);
    if (ApartTape* tape = ApartTape::active()) tape->follow(program_, /*is_replay=*/false);
    results = function(inputs);
  }
  if (Environment::now() != environment_) {
    refuse(
        "The function leaves another setting than it found (grad mode, inference mode, autocast, default type, "
        "number of threads, "
        "deterministic algorithms, ...), which a replay does not; set it outside the function, or by a guard.");
  }
  if (is_in_autocast_context_) {
    check_casts();
  } else if (program_.uses_autocast && keeps_casts()) {
    refuse(
        "The function leaves autocast and not the casts of weights that it keeps, which the next call would "
        "see; "
        "call at::autocast::clear_cache() at its end.");
  }
  // The graph dies with its outputs, and with it what it saved, before anything is asked for what lives on.
  detach_all(results);
  for (size_t i = 0; i < inputs.size(); ++i) {
    program_.input_bumps.push_back(base::version_of(inputs[i]) - versions[i]);
    if (inputs[i].requires_grad() != required[i]) {
      refuse("The function calls requires_grad_() on an input; call it on input.detach().");
    }
    if (!program_.is_part() && !gradients[i].is_left_alone(inputs[i])) {
      refuse(
          "The function leaves a gradient on an input; return the gradient of grad(), or let the function "
          "reach the "
          "tensor by a name.");
    }
  }
  finish(results);
  return results;
}

// An error that leaves the function ends the recording. One that the function catches decides what it does
// next.
void Recorder::call_operator(const Operator& op, c10::DispatchKeySet next, c10::Stack& stack) {
  try {
    op.handle.redispatchBoxed(next, &stack);
  } catch (...) {
    refuse(op.name +
           " throws an error that the function catches, and a replay would go on as if it threw each time; use "
           "a form that "
           "returns what is wrong, as linalg_cholesky_ex does, or leave it outside the function.");
    throw;
  }
}

// A cast that is not kept is made now. A context of Python has cleared all of them at its end.
bool Recorder::keeps_casts() const {
  const at::AutoGradMode with_graph(true);
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCPU);
  const uint64_t next_node = at::sequence_number::peek();
  bool any = false;
  for (const OutsideTensor& outside : program_.outside) {
    const at::Tensor leaf(outside.weak.lock());
    if (!leaf.defined() || !leaf.requires_grad() || !leaf.is_leaf() || leaf.scalar_type() != at::kFloat)
      continue;
    const base::NodePtr node = at::autocast::cached_cast(type, leaf, at::kCPU).grad_fn();
    any |= !node || node->sequence_nr() < next_node;
  }
  if (!any) at::autocast::clear_cache();
  return any;
}

// An operator of autocast hides autocast from those that it calls. A cast of the program's own comes without.
void Recorder::note_cast(const Operator& op, const c10::IValue& operand) {
  const at::Tensor& weight = operand.toTensor();
  const bool is_autocasts =
      c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU) && op.in[1].constant.isInt();
  if (!is_autocasts || !at::autocast::is_autocast_cache_enabled() || !weight.is_leaf() ||
      !weight.requires_grad() || weight.is_view() || weight.scalar_type() != at::kFloat)
    return;
  if (op.grad_mode != environment_.grad_mode) {
    refuse(
        "Autocast keeps a cast of a weight that the function needs first where gradients are switched off, or "
        "on; "
        "call the step outside of the autocast context, and enter it in the function.");
  }
  // This use is the cast's.
  WeightUses& uses = weight_uses_[weight.unsafeGetTensorImpl()];
  if (op.grad_mode && !op.in_backward) --uses.all;
  if (!uses.before_cast) uses.before_cast = uses.all;
  add_cast(weight, static_cast<at::ScalarType>(op.in[1].constant.toInt()));
}

void Recorder::note_uses(at::ArrayRef<c10::IValue> arguments) {
  const auto note = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    if (tensor.is_leaf()) {
      ++weight_uses_[tensor.unsafeGetTensorImpl()].all;
    } else if (const at::Tensor weight = weight_of_cast(tensor); weight.defined()) {
      WeightUses& uses = weight_uses_[weight.unsafeGetTensorImpl()];
      if (!uses.before_cast) uses.before_cast = uses.all;
    }
  };
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) note(argument.toTensor());
    if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) note(tensor);
    }
  }
}

// A replay's cast is older than the call, and its gradient comes last. Of two gradients the order is without
// effect.
void Recorder::refuse_late_casts() {
  for (const KeptCast& cast : program_.kept_casts)
    weights_of_casts_.push_back(cast.weight._unsafe_get_target());
  for (const c10::TensorImpl* weight : weights_of_casts_) {
    const WeightUses& uses = weight_uses_[weight];
    if (uses.all < 2 || uses.before_cast.value_or(0) == 0) continue;
    program_.has_late_cast = true;
    refuse(
        "The function uses a weight as it is, more than once and before autocast casts it, and a replay, whose "
        "cast "
        "is there before the call, would add its gradients in another order; enter autocast inside of the "
        "function.");
  }
}

void Recorder::note_cast_from_before(const at::Tensor& tensor) {
  const at::Tensor weight = weight_of_cast(tensor);
  if (!weight.defined()) return;
  const KeptCast cast{WeakTensor(weight.getIntrusivePtr()), tensor.scalar_type()};
  if (at::autocast::cached_cast(cast.type, weight, at::kCPU).is_same(tensor)) add_cast(weight, cast.type);
}

void Recorder::add_cast(const at::Tensor& weight, at::ScalarType type) {
  const auto is_known = [&](const KeptCast& cast) {
    return cast.weight._unsafe_get_target() == weight.unsafeGetTensorImpl();
  };
  auto& casts = program_.kept_casts;
  if (std::none_of(casts.begin(), casts.end(), is_known))
    casts.push_back({WeakTensor(weight.getIntrusivePtr()), type});
}

// What was taken for a cast of autocast's, and is none, has one now.
void Recorder::check_casts() {
  refuse_late_casts();
  for (const KeptCast& cast : program_.kept_casts) {
    if (!is_kept(cast, at::sequence_number::peek()))
      refuse("The function casts a weight where autocast is switched off; cast it before the call.");
  }
}

void Recorder::note_weights(const std::vector<KeptCast>& casts) {
  for (const KeptCast& cast : casts) {
    const at::Tensor weight(cast.weight.lock());
    if (!weight.defined()) continue;
    program_.leaves.emplace_back(weight.getIntrusivePtr());
    weights_of_casts_.push_back(weight.unsafeGetTensorImpl());
    if (!program_.is_part()) value(weight, "autocast", false);
  }
}

std::string Recorder::refusal_before(const std::string& name, bool answers) const {
  if (std::string reason = refusal_of(name); !reason.empty()) return reason;
  if (answers && program_.is_part()) {
    return c10::str(name,
                    " tells the program something of its data in the backward of a captured part, which cannot "
                    "be taken back; leave it outside the captured function.");
  }
  if (environment_.same_settings(Environment::now())) return "";
  return c10::str(
      name,
      " runs under other settings than the call began with (number of threads, flush-denormal, "
      "default type, deterministic algorithms, precision, backends); set them outside the function.");
}

void Recorder::operator_called(const c10::OperatorHandle& handle, c10::DispatchKeySet next, c10::Stack& stack) {
  std::string name = full_name(handle);
  const auto& schema = handle.schema();
  if (is_of_sizes_alone(schema, stack)) {
    handle.redispatchBoxed(next, &stack);
    return;
  }
  if (!program_.refusal.empty() || name.starts_with("profiler::")) {
    // Whoever is told of refusals hears of the others, too.
    if (!name.starts_with("profiler::") && refusal_listener.load(std::memory_order_relaxed)) {
      std::string reason = refusal_of(name);
      if (!reason.empty()) refuse({std::move(reason), name});
    }
    handle.redispatchBoxed(next, &stack);
    return;
  }
  if (program_.operators.empty()) {
    program_.gradients_cleared =
        !leaves_.empty() && std::none_of(leaves_.begin(), leaves_.end(), [](const auto& leaf) {
          const at::Tensor alive(leaf.leaf.lock());
          return !alive.defined() || alive.grad().defined();
        });
  }
  const bool answers = replay::answers(handle, name, torch::jit::last(stack, schema.arguments().size()));
  if (std::string reason = refusal_before(name, answers); !reason.empty()) {
    refuse({std::move(reason), name});
    handle.redispatchBoxed(next, &stack);
    return;
  }
  const bool is_view =
      !schema.is_mutable() && std::any_of(schema.returns().begin(), schema.returns().end(),
                                          [](const auto& result) { return result.alias_info(); });
  if (!is_view) {
    resolve_lazy_bits(handle, stack, [this](const c10::OperatorHandle& copies, c10::Stack& of_it) {
      operator_called(copies, c10::DispatchKeySet(c10::DispatchKey::CPU), of_it);
    });
  }
  takes_lazy_bits_ = is_view;
  if (operator_listener) operator_listener(name.c_str());
  Operator op{.handle = handle,
              .name = std::move(name),
              .grad_mode = at::GradMode::is_enabled(),
              .in_backward = torch::autograd::get_current_node() != nullptr,
              .answers = answers};
  const size_t arguments = schema.arguments().size();
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    op.in.push_back(argument(stack[i], op.name, nullptr));
  }
  if (op.name == "aten::lift_fresh") note_lifted(op);
  if (is_in_autocast_context_) {
    if (op.grad_mode && !op.in_backward) note_uses(torch::jit::last(stack, arguments));
    if (op.name == "aten::_to_copy") note_cast(op, stack[stack.size() - arguments]);
  }
  if (op.name == "aten::_has_same_storage_numel") note_asked_storages(op);
  note_writes(op);
  check_arrays(op);
  // The program holds a tensor for each use, so that a tensor with other sizes is another one: as with a view,
  // nothing is left to do.
  const bool turns_into_view = handle.hasTag(at::Tag::inplace_view);
  if (!is_view && !turns_into_view && !is_factory_without_values(op.name)) note_host_values(op);
  call_operator(op, next, stack);
  if (makes_no_memory(schema, stack)) return;
  bool any_tensor = false, host_result = false;
  noted_ = &op;
  for (size_t i = stack.size() - schema.returns().size(); i < stack.size(); ++i) {
    Argument out = argument(stack[i], op.name, &op.fresh);
    any_tensor |= out.kind != Argument::Kind::kConstant;
    host_result |= out.kind == Argument::Kind::kConstant && !stack[i].isTensor();
    op.out.push_back(std::move(out));
  }
  noted_ = nullptr;
  takes_lazy_bits_ = false;
  if (host_result && !answers) {
    if (std::string reason = refusal_of_host_result(op.name); !reason.empty()) refuse(std::move(reason));
  }
  const bool any_fresh = std::find(op.fresh.begin(), op.fresh.end(), true) != op.fresh.end();
  const bool filled = at::globalContext().deterministicAlgorithms();
  op.vanishes =
      op.writes.empty() && !schema.is_mutable() && !any_fresh && (any_tensor || host_result) && !answers;
  if ((is_factory_without_values(op.name) && !filled) || turns_into_view) op.vanishes = true;
  if (!op.vanishes) {
    const auto mark = [&](int value) {
      if (value >= 0) program_.memories[program_.values[value].memory].has_values = true;
    };
    for (const Argument& out : op.out) std::for_each(out.values.begin(), out.values.end(), mark);
    for (const int index : op.writes) program_.memories[index].has_values = true;
  }
  check_memory(op);
  program_.operators.push_back(std::move(op));
}

void Recorder::begin_backward(size_t outputs, const std::vector<at::Tensor>& gradients) {
  const bool is_first = !program_.is_part();
  program_.backwards.push_back(static_cast<int>(program_.operators.size()));
  if (is_first) program_.backward_begins = program_.backwards.front();
  program_.outputs = outputs;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) value(gradient, "The gradient of an output", false);
  }
  if (is_first) outside_of_forward_ = program_.outside.size();
}

bool Recorder::backwards_meet() const {
  const auto is_anothers = [&](int value, size_t op) {
    if (value < 0 || program_.memory_of(value).origin != Origin::kMade) return false;
    const int made_by = program_.segment_of(program_.memory_of(value).first);
    return made_by > 0 && made_by != program_.segment_of(static_cast<int>(op));
  };
  for (size_t i = 0; i < program_.operators.size(); ++i) {
    for (const auto* arguments : {&program_.operators[i].in, &program_.operators[i].out}) {
      for (const Argument& each : *arguments) {
        if (std::any_of(each.values.begin(), each.values.end(), [&](int v) { return is_anothers(v, i); }))
          return true;
      }
    }
  }
  return false;
}

// A gradient may lie in memory from before the call: it is that of an output, or a view of it.
bool Recorder::note_result(const at::Tensor& result, bool is_output) {
  if (!result.defined()) {
    program_.results.push_back(-1);
    return true;
  }
  bool fresh = false;
  const int index = value(result, "The function's result", false, &fresh);
  if (index < 0) return false;
  if (fresh || (is_output && program_.memory_of(index).origin != Origin::kMade)) {
    refuse("The function returns a tensor that was there before the call; return its clone().");
    return false;
  }
  program_.results.push_back(index);
  return true;
}

bool Recorder::knows_outside(const at::Tensor& tensor) const {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return outside_seen_.contains(impl) && !views_of_outside_.contains(impl);
}

bool Recorder::uses_memory_of(const at::Tensor& tensor) const {
  return outside_seen_.contains(tensor.unsafeGetTensorImpl()) ||
         (tensor.has_storage() && memories_.contains(tensor.storage().unsafeGetStorageImpl()));
}

bool Recorder::has_made(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const auto known = memories_.find(tensor.storage().unsafeGetStorageImpl());
  return known != memories_.end() && program_.memories[known->second].origin == Origin::kMade;
}

bool Recorder::is_of_graph(size_t index) const {
  if (!program_.is_part()) return false;
  const OutsideTensor& outside = program_.outside[index];
  const bool is_saved =
      index >= outside_of_forward_ && program_.memory_of(outside.value).first < program_.backward_begins;
  return is_saved || views_of_outside_.contains(outside.raw) ||
         is_saved_number(program_.values[outside.value].memory);
}

bool Recorder::is_saved_number(int index) const {
  const Memory& memory = program_.memories[index];
  return program_.is_part() && memory.origin == Origin::kOutside && !memory.written &&
         !memory.constant.empty() && program_.is_wrapped(index);
}

void Recorder::finish(const std::vector<at::Tensor>& results) {
  if (foreign_operators.load(std::memory_order_relaxed) != foreign_before_) {
    refuse("Operators ran on another thread during the recording; only steps on one thread can be replayed.");
  }
  if (!program_.refusal.empty()) return;
  // Guards take the gradients of leaves that require one before and after the call.
  if (switches_off_a_leaf())
    return refuse(
        "The function switches requires_grad of a parameter off at its end; switch it off outside of the "
        "function, or "
        "leave it on.");
  if (program_.operators.empty()) return refuse("The function called no operator; there is nothing to replay.");
  if (program_.backwards.size() > 1 && backwards_meet())
    return refuse("A backward of the part leaves something that the next one uses; make it in the function.");
  check_arrays_left();
  if (!program_.refusal.empty()) return;
  const size_t outside_of_operators = program_.outside.size();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!note_result(results[i], !program_.is_part() || i < program_.outputs)) return;
    if (program_.results[i] >= 0 && program_.memory_of(program_.results[i]).is_array)
      return refuse("The function returns a tensor on the memory of an array; return its clone().");
    const bool has_version = results[i].defined() && !results[i].is_inference();
    program_.result_versions.push_back(has_version ? results[i]._version() : 0);
  }
  // A gradient that is passed on as it came lies in the memory of the one that came.
  const size_t outside_of_results = program_.outside.size();
  adopt_passing_copies();
  find_owners();
  for (size_t i = 0; i < program_.outside.size(); ++i) {
    OutsideTensor& outside = program_.outside[i];
    const auto alive = outside.weak.lock();
    const bool is_result = program_.is_part() && i >= outside_of_operators && i < outside_of_results;
    outside.lives = static_cast<bool>(alive) && !is_of_graph(i) && !is_result;
    if (alive && !alive->is_inference()) outside.version_after = alive->version_counter().current_version();
  }
  for (const auto& [storage, weak] : given_) {
    const bool known = std::any_of(program_.memories.begin(), program_.memories.end(),
                                   [&](const Memory& memory) { return memory.raw == storage; });
    if (!known && !weak.second.expired()) program_.given.push_back(weak.second);
  }
  for (size_t i = 0; i < program_.memories.size(); ++i) {
    Memory& memory = program_.memories[i];
    // What a part makes is the graph's as long as that lives, and never the program's.
    memory.lives = !memory.weak.expired() && (!program_.is_part() || memory.origin != Origin::kMade);
    if (is_saved_number(static_cast<int>(i))) memory.lives = false;
    if (memory.origin != Origin::kOutside || memory.lives) continue;
    if (!program_.is_used(static_cast<int>(i))) {
      memory.origin = Origin::kGone;
      continue;
    }
    if (memory.constant.empty() || memory.written) {
      const std::string& name = program_.operators[std::max(memory.first, 0)].name;
      return refuse(refusal_of_what_died(name, gradients_before_.contains(memory.raw)));
    }
    memory.origin = Origin::kConstant;
  }
}

}  // namespace overdrive::replay
