#include "replay/run/replay_run.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>

#include "engine/operators/facts.h"
#include "replay/guard/input_signature.h"
#include "replay/lean/lean.h"

#include <cstring>
#include <unordered_set>

namespace overdrive::replay {

namespace {

// An operator that the table does not know may throw as well.
bool may_throw_on_data(const Program& program, const Operator& op) {
  const engine::Throws throws = engine::facts_of(op.name).throws;
  if (throws != engine::Throws::kOnIntegers) return throws != engine::Throws::kNever;
  return std::none_of(op.out.begin(), op.out.end(), [&](const Argument& out) {
    return out.is_tensor() && out.values[0] >= 0 &&
           !at::isIntegralType(program.values[out.values[0]].type, false);
  });
}

// Copies of what a step needs and nothing of autograd; grad mode is the recorded operator's.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below;
  at::AutoGradMode grad_mode{at::GradMode::is_enabled()};
};

// The event is the one that LibTorch's dispatcher emits around the operator.
[[gnu::noinline]] void run_in_event(const ReplayStep& step, const Operator& op) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) return step.step();
  at::RecordFunction event(std::move(*callbacks));
  event.before(std::cref(op.handle.schema()));
  step.step();
}

}  // namespace

ReplayRun::ReplayRun(Program program, const std::vector<at::Tensor>& buffers)
    : bound_(std::move(program), buffers), guard_(bound_) {
  if (!refusal().empty()) return;
  make_steps();
  plan_undo();
}

const std::string& ReplayRun::refusal() const {
  return bound_.program().refusal.empty() ? guard_.refusal() : bound_.program().refusal;
}

void ReplayRun::make_steps() {
  const auto& operators = program().operators;
  std::vector<std::vector<int>> fills(operators.size());
  for (size_t i = 0; i < program().memories.size(); ++i) {
    const int at = program().memories[i].host_filled;
    if (at >= 0) fills[at].push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < operators.size(); ++i) {
    for (const int memory : fills[i]) {
      steps_.push_back(
          {step_of([this, memory] { bound_.fill_from_host(memory); }), static_cast<int>(i), nullptr, true});
    }
    if (operators[i].vanishes) continue;
    Step step = boxed_step(bound_, operators[i]);
    auto* boxed = static_cast<BoxedStep*>(&step.state());
    steps_.push_back({std::move(step), static_cast<int>(i), boxed});
  }
}

void ReplayRun::plan_undo() {
  const auto& operators = program().operators;
  int last = -1;
  for (size_t i = 0; i < operators.size(); ++i) {
    if (!operators[i].vanishes && may_throw_on_data(program(), operators[i])) last = static_cast<int>(i);
  }
  if (last < 0) return;
  may_undo_ = true;
  std::unordered_set<int> written(bound_.hosts().begin(), bound_.hosts().end());
  for (int i = 0; i <= last; ++i) {
    if (operators[i].vanishes) continue;
    for (const int memory : operators[i].writes) written.insert(memory);
    for (const Argument& out : operators[i].out) {
      for (const int value : out.values) {
        if (value >= 0) written.insert(program().values[value].memory);
      }
    }
  }
  for (const int memory : written) {
    if (program().memories[memory].lives && program().memories[memory].origin != Origin::kInput) {
      undo_.add(bound_.storage(memory).unsafeGetStorageImpl());
    }
  }
  if (program().uses_random_numbers()) {
    for (const at::Generator& generator : generators_of(program())) undo_.add(generator);
  }
}

void ReplayRun::run_steps() {
  const BelowAutograd scope;
  const auto& operators = program().operators;
  bool grad_mode = at::GradMode::is_enabled();
  const bool seen = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  for (const ReplayStep& step : steps_) {
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
  TORCH_CHECK(!is_broken_, broken_.empty() ? "A replay failed in the middle." : broken_);
  if (!undo_.empty()) undo_.take();
  try {
    run_steps();
    return true;
  } catch (const std::exception& error) {
    if (may_undo_) {
      undo_.restore();
      return false;
    }
    is_broken_ = true;  // before the text, which may find no memory
    broken_ = c10::str(
        "A replay failed in the middle, and the tensors that the step changes are those of a part of it. "
        "The error was: ",
        error.what());
    throw;
  }
}

void ReplayRun::run_checked() {
  bound_.poison();
  // Forms of operators that are tried and dropped warn that they resize their results.
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silent);
  const BelowAutograd scope;
  for (ReplayStep& step : steps_) {
    if (!step.boxed) {
      step.step();
      continue;
    }
    at::GradMode::set_enabled(program().operators[step.op].grad_mode);
    run_checked(step);
  }
}

void ReplayRun::run_checked(ReplayStep& step) {
  const Operator& op = program().operators[step.op];
  if (step.boxed->form() == Form::kOut && !step.boxed->keeps_results_in_place()) step.boxed->use_copies();
  const Snapshot before = memories_of_results(op);
  step.step();
  for (const Argument& out : op.out) {
    for (const int value : out.values) {
      TORCH_CHECK(value < 0 || bound_.intact(value), op.name, " moved its result.");
    }
  }
  make_lean(step, before);
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

// Both run from the same bytes, so that a lean step that leaves an element out is found too.
void ReplayRun::make_lean(ReplayStep& step, const Snapshot& before) {
  auto lean = lean_step(bound_, program().operators[step.op]);
  if (!lean) return;
  for (const Number& number : numbers_) {
    if (number.op == step.op && !lean->state().set_number(number.argument, number.value)) return;
  }
  const Snapshot boxed = before.now();
  before.restore();
  (*lean)();
  if (boxed.first_difference(boxed.now()) >= 0) {
    boxed.restore();
    return;
  }
  step.step = std::move(*lean);
  step.boxed = nullptr;
}

std::vector<at::Tensor> ReplayRun::results() const {
  std::vector<at::Tensor> results;
  for (const int value : program().results) {
    if (value < 0) {
      results.emplace_back();
      continue;
    }
    const at::Tensor& kept = bound_.tensor(value);
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor result = at::empty_strided(kept.sizes(), kept.strides(), kept.options());
    copy_elements(result, kept);
    results.push_back(std::move(result));
  }
  return results;
}

Step::State& ReplayRun::state_of(int op) {
  for (ReplayStep& step : steps_) {
    if (step.op == op && !step.fills) return step.step.state();
  }
  TORCH_INTERNAL_ASSERT(false, "A view has no step.");
}

size_t ReplayRun::lean_steps() const {
  return std::count_if(steps_.begin(), steps_.end(), [](const ReplayStep& step) { return !step.boxed; });
}

}  // namespace overdrive::replay
