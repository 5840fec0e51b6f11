#include "replay/optimizers/numbers_of_optimizers.h"

#include <algorithm>
#include <unordered_set>

namespace overdrive::replay {

NumbersOfOptimizers::NumbersOfOptimizers(const std::vector<torch::optim::Optimizer*>& optimizers) {
  for (torch::optim::Optimizer* optimizer : optimizers) all_.emplace_back(*optimizer);
}

std::string NumbersOfOptimizers::refusal() const {
  for (const OptimizerNumbers& each : all_) {
    if (!each.refusal().empty()) return each.refusal();
  }
  return "";
}

std::string NumbersOfOptimizers::find(const Program& program) {
  for (OptimizerNumbers& each : all_) {
    if (std::string reason = each.find(program); !reason.empty()) return reason;
  }
  return "";
}

Refusal NumbersOfOptimizers::change_by_a_number(const Program& program) const {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const OptimizerNumbers& each : all_) known.insert(each.parameters().begin(), each.parameters().end());
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    if (op.vanishes || is_update(i) || !program.changes_by_a_number(i)) continue;
    for (const OutsideTensor& outside : program.outside) {
      const int memory = program.values[outside.value].memory;
      if (std::find(op.writes.begin(), op.writes.end(), memory) == op.writes.end()) continue;
      const at::Tensor tensor(outside.weak.lock());
      if (known.contains(outside.raw)) {
        return {
            c10::str(op.name,
                     " changes a parameter by a number outside the optimizer's step(), and a replay would not "
                     "see when the number changes; promise .constant_numbers if it never does."),
            op.name};
      }
      if (!tensor.defined() || !tensor.is_leaf() || !tensor.requires_grad()) continue;
      return {
          c10::str(op.name,
                   " changes by a number a parameter that no optimizer of the step has, as step() of another "
                   "one does; give all of them by .optimizers, or promise .constant_numbers if the number "
                   "never changes."),
          op.name};
    }
  }
  return "";
}

bool NumbersOfOptimizers::may_differ(size_t op, size_t argument) const {
  return std::any_of(all_.begin(), all_.end(), [&](const auto& each) { return each.may_differ(op, argument); });
}

bool NumbersOfOptimizers::is_update(size_t op) const {
  return std::any_of(all_.begin(), all_.end(), [&](const auto& each) { return each.is_update(op); });
}

void NumbersOfOptimizers::declare(ReplayRun& run) const {
  for (const OptimizerNumbers& each : all_) each.declare(run);
}

void NumbersOfOptimizers::bind(ReplayRun& run) {
  for (OptimizerNumbers& each : all_) each.bind(run);
}

Difference NumbersOfOptimizers::difference() {
  for (OptimizerNumbers& each : all_) {
    if (const Difference found = each.difference()) return found;
  }
  return {};
}

void NumbersOfOptimizers::set_for_next_step() {
  for (OptimizerNumbers& each : all_) each.set_for_next_step();
}

void NumbersOfOptimizers::count_step() {
  for (OptimizerNumbers& each : all_) each.count_step();
}

}  // namespace overdrive::replay
