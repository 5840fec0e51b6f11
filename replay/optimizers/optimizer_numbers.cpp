#include "replay/optimizers/optimizer_numbers.h"

#include "replay/record/compare.h"

namespace overdrive::replay {

// Note [Numbers of an optimizer]
// A recording shows numbers and not where they come from. An optimizer runs its updates one after the other,
// with nothing in between, so the recording must contain, once, the operators that update_rules.h expects,
// on the parameters that the step changes, with numbers that are equal bit by bit to the formulas' for the step
// count of this call. Two recordings with different counts are held to it. A rule that is wrong for a version
// of LibTorch finds nothing and refuses. An earlier idea, to run the step once more with other options and to
// see which numbers change, would have called the user's function more often than the user does.

namespace {

std::string_view without_overload(std::string_view name) { return name.substr(0, name.find('.')); }

// The argument that a number of an update is given by: the factor rather than the weight of the second operand.
int number_argument(const Operator& op) {
  const auto& arguments = op.handle.schema().arguments();
  int found = -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (op.in[i].kind != Argument::Kind::kConstant || !op.in[i].constant.isScalar()) continue;
    if (found < 0 || arguments[i].name() != "alpha") found = static_cast<int>(i);
  }
  return found;
}

int memory_of(const Program& program, const c10::TensorImpl* tensor) {
  const auto* storage = tensor->storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < program.memories.size(); ++i) {
    if (program.memories[i].raw == storage && program.memories[i].origin == Origin::kOutside)
      return static_cast<int>(i);
  }
  return -1;
}

// Those of which a replay has a step.
std::vector<int> operators_of_steps(const Program& program) {
  std::vector<int> kept;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    if (!program.operators[i].vanishes) kept.push_back(static_cast<int>(i));
  }
  return kept;
}

bool same_operators(const std::vector<UpdateOperator>& a, const std::vector<UpdateOperator>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.name == y.name && x.has_number == y.has_number;
  });
}

}  // namespace

OptimizerNumbers::OptimizerNumbers(torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer), kind_(kind_of(optimizer)) {
  if (kind_ == OptimizerKind::kUnknown) {
    refusal_ =
        "The optimizer is not one of SGD, Adam, AdamW, RMSprop and Adagrad; leave its step() outside the "
        "function.";
  }
}

std::vector<c10::TensorImpl*> OptimizerNumbers::all_parameters() const {
  std::vector<c10::TensorImpl*> result;
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& parameter : group.params()) result.push_back(parameter.unsafeGetTensorImpl());
  }
  return result;
}

torch::optim::OptimizerParamState* OptimizerNumbers::state_of(c10::TensorImpl* tensor) const {
  const auto found = optimizer_.state().find(tensor);
  return found == optimizer_.state().end() ? nullptr : found->second.get();
}

int64_t OptimizerNumbers::steps_of(c10::TensorImpl* tensor) const {
  const auto* state = state_of(tensor);
  return state ? replay::steps_of(kind_, *state) : 0;
}

OptimizerNumbers::Update OptimizerNumbers::update_now(const Parameter& parameter, int64_t ahead) const {
  return update_of(kind_, optimizer_.param_groups()[parameter.group].options(),
                   steps_of(parameter.tensor) + ahead);
}

bool OptimizerNumbers::match(const Program& program, const std::vector<int>& kept, size_t at,
                             const Update& update, int memory, Parameter& parameter) const {
  if (at + update.size() > kept.size()) return false;
  parameter.uses.clear();
  for (size_t i = 0; i < update.size(); ++i) {
    const Operator& op = program.operators[kept[at + i]];
    if (without_overload(op.name) != update[i].name) return false;
    if (!update[i].has_number) continue;
    const int argument = number_argument(op);
    if (argument < 0 || !op.in[argument].constant.isDouble() ||
        !same_bits(op.in[argument].constant.toDouble(), update[i].number)) {
      return false;
    }
    parameter.uses.push_back({kept[at + i], argument, i});
  }
  const auto& writes = program.operators[kept[at + update.size() - 1]].writes;
  return writes.size() == 1 && writes[0] == memory;
}

std::vector<OptimizerNumbers::Expected> OptimizerNumbers::expect(const Program& program) {
  std::vector<Expected> expected;
  for (size_t g = 0; g < optimizer_.param_groups().size(); ++g) {
    const auto& group = optimizer_.param_groups()[g];
    recorded_.push_back(update_of(kind_, group.options(), 1));
    for (const at::Tensor& tensor : group.params()) {
      const int memory = memory_of(program, tensor.unsafeGetTensorImpl());
      if (memory < 0 || !program.memories[memory].written) {
        idle_.push_back({tensor.unsafeGetTensorImpl(), tensor.grad().defined()});
        continue;
      }
      Parameter parameter{tensor.unsafeGetTensorImpl(), g, {}};
      Update update = update_now(parameter, 0);
      expected.push_back({std::move(parameter), std::move(update), memory});
    }
  }
  return expected;
}

// Stops at the second use: that one is a refusal.
size_t OptimizerNumbers::search(const Program& program, std::vector<Expected>& expected) {
  const std::vector<int> kept = operators_of_steps(program);
  size_t found = 0;
  for (size_t start = 0; start < kept.size(); ++start) {
    size_t at = start;
    std::vector<Parameter> parameters;
    for (Expected& each : expected) {
      if (!match(program, kept, at, each.update, each.memory, each.parameter)) break;
      at += each.update.size();
      parameters.push_back(each.parameter);
    }
    if (parameters.size() < expected.size()) continue;
    if (found++ > 0) break;
    first_ = kept[start];
    last_ = kept[at - 1];
    parameters_ = std::move(parameters);
  }
  return found;
}

std::string OptimizerNumbers::find(const Program& program) {
  all_ = all_parameters();
  parameters_.clear();
  idle_.clear();
  recorded_.clear();
  std::vector<Expected> expected = expect(program);
  if (expected.empty())
    return "The step changes none of the optimizer's parameters; call its step() in the function.";
  const size_t found = search(program, expected);
  for (Parameter& parameter : parameters_) {
    if (const auto* state = state_of(parameter.tensor)) parameter.state_tensors = tensors_of(kind_, *state);
  }
  if (found == 1) return "";
  return found == 0 ? "The optimizer's step() was not found in the recording; the function must call it once, "
                      "for parameters of which each has memory of its own."
                    : "The function calls the optimizer's step() more than once; capture one step.";
}

bool OptimizerNumbers::may_differ(size_t op, size_t argument) const {
  for (const Parameter& parameter : parameters_) {
    for (const Use& use : parameter.uses) {
      if (use.op == static_cast<int>(op) && use.argument == static_cast<int>(argument)) return true;
    }
  }
  return false;
}

void OptimizerNumbers::declare(ReplayRun& run) const {
  for (const Parameter& parameter : parameters_) {
    const Update update = update_now(parameter, 0);
    for (const Use& use : parameter.uses) {
      run.state_of(use.op).set_number(use.argument, update[use.in_update].number);
      run.declare_number(use.op, use.argument, update[use.in_update].number);
    }
  }
}

void OptimizerNumbers::bind(ReplayRun& run) {
  for (Parameter& parameter : parameters_) {
    for (Use& use : parameter.uses) use.step = &run.state_of(use.op);
  }
}

void OptimizerNumbers::set(const Parameter& parameter, const Update& update) const {
  for (const Use& use : parameter.uses) {
    use.step->set_number(use.argument, update[use.in_update].number);
  }
}

Difference OptimizerNumbers::difference() {
  size_t place = 0;
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (place >= all_.size() || all_[place++] != parameter.unsafeGetTensorImpl())
        return "the optimizer has other parameters";
    }
  }
  if (place != all_.size()) return "the optimizer has other parameters";
  for (const Idle& idle : idle_) {
    if (idle.tensor->grad().defined() != idle.has_gradient)
      return {"a gradient was set or taken away", RefusalKind::kGradientChanged};
  }
  for (Parameter& parameter : parameters_) {
    parameter.state = state_of(parameter.tensor);
    if (!parameter.state ? !parameter.state_tensors.empty()
                         : !has_tensors(kind_, *parameter.state, parameter.state_tensors)) {
      return "the state of the optimizer was replaced";
    }
  }
  next_.assign(recorded_.size(), {});
  for (size_t g = 0; g < recorded_.size(); ++g) {
    if (!same_operators(update_of(kind_, optimizer_.param_groups()[g].options(), 1), recorded_[g])) {
      return "the optimizer's options ask for other operators";
    }
  }
  return {};
}

// Parameters of a group are as a rule at the same step, so that one computation serves them all.
void OptimizerNumbers::set_for_next_step() {
  for (const Parameter& parameter : parameters_) {
    const int64_t step = (parameter.state ? replay::steps_of(kind_, *parameter.state) : 0) + 1;
    auto& known = next_[parameter.group];
    auto found = std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == step; });
    if (found == known.end()) {
      known.emplace_back(step, update_of(kind_, optimizer_.param_groups()[parameter.group].options(), step));
      found = std::prev(known.end());
    }
    set(parameter, found->second);
  }
}

void OptimizerNumbers::count_step() {
  if (kind_ == OptimizerKind::kSgd) return;
  for (const Parameter& parameter : parameters_) {
    if (parameter.state)
      replay::set_steps(kind_, *parameter.state, replay::steps_of(kind_, *parameter.state) + 1);
  }
}

}  // namespace overdrive::replay
