#include "replay/run/replay_run.h"

#include <ATen/record_function.h>

#include "engine/base/c_error.h"
#include "replay/direct/direct_step.h"
#include "replay/guard/input_signature.h"
#include "replay/passes/operator_kind.h"
#include "replay/record/changed_apart.h"
#include "replay/run/below_autograd.h"

#include <cstring>

namespace overdrive::replay {

namespace {

// Below, a copy costs less than a step through the dispatcher.
constexpr size_t kLargeGradient = size_t{32} << 10;

// Bytes that no program counts on: first -1 and NaN, then another number, for programs that write -1 or NaN.
constexpr uint8_t kPoison = 0xff, kOtherPoison = 0xa5;

// Which result of the operator lies in the memory; -1: none, or it is a list's.
int output_in(const Program& program, const Operator& op, int memory) {
  for (size_t i = 0; i < op.out.size(); ++i) {
    const Argument& out = op.out[i];
    if (out.is_tensor() && out.values[0] >= 0 && program.values[out.values[0]].memory == memory)
      return static_cast<int>(i);
  }
  return -1;
}

// The event is the one that LibTorch's dispatcher emits around the operator.
[[gnu::noinline]] void run_in_event(const ReplayStep& step, const Operator& op) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) return step.step();
  at::RecordFunction event(std::move(*callbacks));
  event.before(std::cref(op.handle.schema()));
  step.step();
}

// A step of a run that is made after another, whose step was checked.
void do_as(ReplayStep& step, const ReplayStep& checked, const BoundProgram& bound) {
  if (step.fills) return;
  if (checked.boxed) return step.boxed->do_as(*checked.boxed);
  step.step = *direct_step(bound, bound.program().operators[step.op]);
  step.boxed = nullptr;
}

}  // namespace

ReplayRun::ReplayRun(Program program, Passes passes, const std::vector<at::Tensor>& buffers)
    : bound_(std::move(program), std::move(passes), buffers), guard_(bound_) {
  if (!refusal().empty()) return;
  make_steps();
  plan_undo();
}

ReplayRun::ReplayRun(const ReplayRun& other)
    : ReplayRun(Program(other.program()), Passes(other.bound().passes()),
                buffers_like(other.bound().buffers())) {
  if (!refusal().empty()) return;
  for (size_t i = 0; i < steps_.size(); ++i) do_as(steps_[i], other.steps_[i], bound_);
  const BelowAutograd scope;
  for (size_t i = 0; i < constant_steps_.size(); ++i) {
    do_as(constant_steps_[i], other.constant_steps_[i], bound_);
    at::GradMode::set_enabled(program().operators[constant_steps_[i].op].grad_mode);
    constant_steps_[i].step();
  }
}

const std::string& ReplayRun::refusal() const {
  const std::string& of_program = bound_.program().refusal.text;
  return of_program.empty() ? guard_.refusal() : of_program;
}

void ReplayRun::make_steps() {
  const auto& operators = program().operators;
  const Passes& passes = bound_.passes();
  const std::vector<bool> used = passes.used(program());
  std::vector<std::vector<int>> fills(operators.size());
  for (size_t i = 0; i < program().memories.size(); ++i) {
    const int at = program().memories[i].host_filled;
    if (at >= 0 && used[i] && !passes.constant[i]) fills[at].push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < operators.size(); ++i) {
    for (const int memory : fills[i]) {
      steps_.push_back({step_of([this, memory] { bound_.fill_from_host(memory); }), static_cast<int>(i),
                        nullptr, true, memory});
    }
    if (operators[i].vanishes || (!passes.runs(i) && passes.fates[i] != Fate::kOnce)) continue;
    Step step = boxed_step(bound_, operators[i]);
    auto* boxed = static_cast<BoxedStep*>(&step.state());
    auto& steps = passes.runs(i) ? steps_ : constant_steps_;
    steps.push_back({std::move(step), static_cast<int>(i), boxed});
  }
  for (const int begin : program().backwards) {
    const auto is_before = [&](const ReplayStep& step) { return step.op < begin; };
    backward_steps_.push_back(std::count_if(steps_.begin(), steps_.end(), is_before));
  }
  backward_steps_.push_back(steps_.size());
  forward_steps_ = backward_steps_.front();
}

std::vector<int> ReplayRun::changes(const Operator& op) const {
  std::vector<int> result;
  if (op.vanishes) return result;
  const auto add = [&](int memory) {
    if (const int host = bound_.host_of(memory); host >= 0) memory = host;
    const Memory& changed = program().memories[memory];
    if (!changed.lives || changed.origin == Origin::kInput) return;
    // Nobody sees the values of a gradient that zero_grad() has taken away before the first operator.
    if (program().gradients_cleared && program().is_new_gradient(changed)) return;
    result.push_back(memory);
  };
  for (const int memory : op.writes) add(memory);
  for (const Argument& out : op.out) {
    for (const int value : out.values) {
      if (value >= 0) add(program().values[value].memory);
    }
  }
  return result;
}

void ReplayRun::plan_undo() {
  const auto& operators = program().operators;
  // A backward changes nothing that was there before it.
  const int count = program().is_part() ? program().backward_begins : static_cast<int>(operators.size());
  int last = -1;
  bool& draws = saves_generators_;
  for (int i = 0; i < count; ++i) {
    if (!operators[i].vanishes && may_throw_on_data(program(), operators[i])) last = i;
  }
  for (int i = 0; i <= last; ++i) {
    draws |= operators[i].handle.hasTag(at::Tag::nondeterministic_seeded);
    for (const int memory : changes(operators[i])) {
      if (saved_.insert(memory).second) undo_.add(bound_.storage(memory).unsafeGetStorageImpl());
    }
  }
  for (const at::Generator& generator : draws ? generators_of(program()) : std::vector<at::Generator>()) {
    undo_.add(generator);
  }
  for (first_unsaved_ = last + 1; first_unsaved_ < count; ++first_unsaved_) {
    if (changes_unsaved(first_unsaved_)) break;
  }
}

bool ReplayRun::changes_unsaved(int op) const {
  const Operator& each = program().operators[op];
  const auto memories = changes(each);
  return std::any_of(memories.begin(), memories.end(), [&](int m) { return !saved_.contains(m); }) ||
         (!saves_generators_ && each.handle.hasTag(at::Tag::nondeterministic_seeded));
}

void ReplayRun::run_steps(size_t& done, size_t end) {
  const BelowAutograd scope;
  const auto& operators = program().operators;
  bool grad_mode = at::GradMode::is_enabled();
  const bool seen = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  for (; done < end; ++done) {
    const ReplayStep& step = steps_[done];
    if (step.boxed && operators[step.op].grad_mode != grad_mode) {
      grad_mode = !grad_mode;
      at::GradMode::set_enabled(grad_mode);
    }
    if (seen && !step.fills) {
      run_in_event(step, operators[step.op]);
    } else {
      step.step();
    }
  }
}

bool ReplayRun::run() {
  // Whoever runs all of a part compares what lies in its memory.
  for (const Fresh& fresh : fresh_) {
    const ReplayStep& step = steps_[fresh.step];
    step.boxed->put_result_in(fresh.output,
                              bound_.tensor(program().operators[step.op].out[fresh.output].values[0]));
  }
  return run_until(steps_.size());
}

bool ReplayRun::run_forward() { return run_until(forward_steps_); }

void ReplayRun::make_large_gradients_fresh() {
  for (size_t i = program().outputs; i < program().results.size(); ++i) {
    const int value = program().results[i];
    const int memory = value < 0 ? -1 : program().values[value].memory;
    if (memory < 0 || program().memories[memory].bytes < kLargeGradient) continue;
    if (bound_.passes().stands_for_others(memory)) continue;
    const int maker = program().only_maker(memory);
    for (size_t k = forward_steps_; k < steps_.size() && maker >= 0; ++k) {
      if (steps_[k].op != maker || steps_[k].fills) continue;
      const int output = output_in(program(), program().operators[maker], memory);
      if (output >= 0 && puts_results(steps_[k])) fresh_.push_back({i, k, static_cast<size_t>(output)});
    }
  }
}

// A direct step has its result's address, and makes room for a boxed one.
bool ReplayRun::puts_results(ReplayStep& step) {
  if (step.boxed) return step.boxed->can_put_results();
  Step made = boxed_step(bound_, program().operators[step.op]);
  auto* boxed = static_cast<BoxedStep*>(&made.state());
  if (!boxed->can_put_results() || boxed->has_generated_form()) return false;
  step.step = std::move(made);
  step.boxed = boxed;
  return true;
}

void ReplayRun::run_backward(size_t which) {
  size_t done = backward_steps_[which];
  const size_t end = backward_steps_[which + 1];
  for (Fresh& fresh : fresh_) {
    if (fresh.step < done || fresh.step >= end) continue;
    const ReplayStep& step = steps_[fresh.step];
    fresh.made = room_for(bound_.tensor(program().operators[step.op].out[fresh.output].values[0]));
    step.boxed->put_result_in(fresh.output, fresh.made);
  }
  run_steps(done, end);
}

bool ReplayRun::run_until(size_t end) {
  TORCH_CHECK(!is_broken_, broken_.empty() ? "A replay failed in the middle." : broken_);
  if (!undo_.empty()) undo_.take();
  size_t done = 0;
  bool changed = false;
  try {
    if (!runner_ || end != steps_.size() || !runner_->run(done, changed)) run_steps(done, end);
    return true;
  } catch (const std::exception& error) {
    const int op = steps_[done].op;
    const auto* other = dynamic_cast<const OtherAnswer*>(&error);
    other_answer_ = other ? other->op.name : "";
    // Its effects are not the replay's to take back.
    const bool is_taken_back = op < first_unsaved_ && !changed && !dynamic_cast<const ChangedApart*>(&error);
    if (is_taken_back) {
      undo_.restore();
      failure_ = base::text_of(error);
      return false;
    }
    is_broken_ = true;  // before the text, which may find no memory
    broken_ =
        c10::str("A replay failed in the middle, in ", program().operators[op].name,
                 ", and the tensors that the step changes are those of a part of it; put them back, and call "
                 "reset(). The error was: ",
                 base::text_of(error));
    throw;
  }
}

void ReplayRun::run_checked() {
  bound_.poison(kPoison);
  // Forms of operators that are tried and dropped warn that they resize their results.
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silent);
  const BelowAutograd scope;
  run_checked(constant_steps_);
  run_checked(steps_);
}

void ReplayRun::run_checked(std::vector<ReplayStep>& steps) {
  for (ReplayStep& step : steps) {
    if (!step.boxed) {
      step.step();
      continue;
    }
    at::GradMode::set_enabled(program().operators[step.op].grad_mode);
    run_checked(step);
  }
}

void ReplayRun::run_again() {
  bound_.poison(kOtherPoison);
  size_t done = 0;
  run_steps(done, steps_.size());
  run_backwards_again();
  for (size_t i = 0; i < program().values.size(); ++i) {
    const int first = std::max(program().memory_of(static_cast<int>(i)).first, 0);
    TORCH_CHECK(bound_.intact(static_cast<int>(i)), "a tensor of ", program().operators[first].name,
                " has other sizes or other memory after a replay.");
  }
}

// A graph that is kept has more than one backward, in any order. After the last one everything is as after the
// first of all.
void ReplayRun::run_backwards_again() {
  const size_t count = program().backwards.size();
  std::vector<std::vector<at::Tensor>> alone(count);
  for (size_t i = count; count > 1 && i-- > 0;) {
    run_backward(i);
    alone[i] = gradients(i);
  }
  for (size_t i = 0; i < count; ++i) run_backward(i);
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < alone[i].size(); ++k) {
      const int value = program().results[program().outputs + i * alone[i].size() + k];
      TORCH_CHECK(value < 0 || same_elements(alone[i][k], bound_.tensor(value)),
                  "a backward of the part makes other gradients after another one.");
    }
  }
}

void ReplayRun::run_checked(ReplayStep& step) {
  const Operator& op = program().operators[step.op];
  step.boxed->choose_form();
  const Snapshot before = memories_of_results(op);
  step.step();
  step.boxed->protect_lists();
  for (const Argument& out : op.out) {
    for (const int value : out.values) {
      TORCH_CHECK(value < 0 || bound_.intact(value), op.name, " moved its result.");
    }
  }
  make_direct(step, before);
}

Snapshot ReplayRun::memories_of_results(const Operator& op) const {
  Snapshot result;
  for (const Argument& out : op.out) {
    for (const int value : out.values) {
      if (value >= 0) result.add(bound_.storage(program().values[value].memory).unsafeGetStorageImpl());
    }
  }
  return result;
}

// Both run from the same bytes, so that a direct step that leaves an element out is found too.
void ReplayRun::make_direct(ReplayStep& step, const Snapshot& before) {
  auto direct = direct_step(bound_, program().operators[step.op]);
  if (!direct) return;
  for (const Number& number : numbers_) {
    if (number.op == step.op && !direct->state().set_number(number.argument, number.value)) return;
  }
  const Snapshot boxed = before.now();
  before.restore();
  (*direct)();
  if (boxed.first_difference(boxed.now()) >= 0) {
    boxed.restore();
    return;
  }
  step.step = std::move(*direct);
  step.boxed = nullptr;
}

std::vector<at::Tensor> ReplayRun::empty_results() const {
  std::vector<at::Tensor> kept;
  for (const int value : program().results) kept.push_back(value < 0 ? at::Tensor() : bound_.tensor(value));
  return room_for(kept);
}

void ReplayRun::fill_results(const std::vector<at::Tensor>& results) const {
  for (size_t i = 0; i < results.size(); ++i) {  // a part's outputs come first
    if (!results[i].defined()) continue;
    copy_elements(results[i], bound_.tensor(program().results[i]));
    if (results[i].is_inference()) continue;
    for (int64_t k = 0; k < program().result_versions[i]; ++k) results[i].unsafeGetTensorImpl()->bump_version();
  }
}

std::vector<at::Tensor> ReplayRun::empty_outputs() const {
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < program().outputs; ++i) {
    const int value = program().results[i];
    outputs.push_back(value < 0 ? at::Tensor() : room_for(bound_.tensor(value)));
  }
  return outputs;
}

// Two may be one tensor in eager, which its two leaves then copy; here each takes its own.
// The maker's result may be seen as another view of its memory, as a transposed one.
at::Tensor ReplayRun::take_fresh(Fresh& fresh, const at::Tensor& like) {
  steps_[fresh.step].boxed->put_result_in(fresh.output, at::Tensor());
  const at::Tensor made = std::exchange(fresh.made, at::Tensor());
  if (made.sizes() == like.sizes() && made.strides() == like.strides()) return made;
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(made.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), made.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return result;
}

std::vector<at::Tensor> ReplayRun::gradients(size_t which) {
  std::vector<at::Tensor> gradients;
  const size_t count = program().gradients_of_each(), first = program().outputs + which * count;
  for (size_t i = first; i < first + count; ++i) {
    const int value = program().results[i];
    const auto fresh =
        std::find_if(fresh_.begin(), fresh_.end(), [&](const Fresh& each) { return each.result == i; });
    if (value >= 0 && fresh != fresh_.end()) {
      gradients.push_back(take_fresh(*fresh, bound_.tensor(value)));
      continue;
    }
    gradients.push_back(value < 0 ? at::Tensor() : room_for(bound_.tensor(value)));
    if (value >= 0) copy_elements(gradients.back(), bound_.tensor(value));
  }
  return gradients;
}

void ReplayRun::take_results(const std::vector<at::Tensor>& eager) const {
  for (size_t i = 0; program().is_part() && i < eager.size(); ++i) {
    const int value = program().results[i];
    if (value < 0 || program().memory_of(value).origin != Origin::kMade) continue;
    const c10::Storage& storage = bound_.storage(program().values[value].memory);
    if (storage.nbytes() > 0) std::memcpy(storage.mutable_data(), eager[i].storage().data(), storage.nbytes());
  }
}

std::vector<at::Tensor> ReplayRun::results() const {
  std::vector<at::Tensor> results = empty_results();
  fill_results(results);
  return results;
}

Step::State& ReplayRun::state_of(int op) {
  for (ReplayStep& step : steps_) {
    if (step.op == op && !step.fills) return step.step.state();
  }
  TORCH_INTERNAL_ASSERT(false, "A view has no step.");
}

size_t ReplayRun::direct_steps() const {
  return std::count_if(steps_.begin(), steps_.end(), [](const ReplayStep& step) { return !step.boxed; });
}

}  // namespace overdrive::replay
