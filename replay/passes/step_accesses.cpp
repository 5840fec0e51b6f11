#include "replay/passes/step_accesses.h"

#include "engine/operators/facts.h"
#include "replay/passes/operator_kind.h"

namespace overdrive::replay {

namespace {

// The updates of Python's optimizers are operators of ours, and change what their schemas say.
bool is_known(const Operator& op) {
  if (op.name == "overdrive::sgd_" || op.name == "overdrive::adam_") return true;
  return op.name.starts_with("aten::") && engine::facts_of(op.name).throws != engine::Throws::kUnknown &&
         !engine::facts_of(op.name).moves_memory;
}

}  // namespace

StepAccesses accesses_of(const Program& program, size_t op) {
  const Operator& each = program.operators[op];
  StepAccesses result{.draws = is_random(each), .is_foreign = !is_known(each)};
  const auto add = [&](const std::vector<Argument>& arguments, std::vector<int>& to) {
    for (const Argument& argument : arguments) {
      for (const int value : argument.values) {
        if (value >= 0) to.push_back(program.values[value].memory);
      }
    }
  };
  add(each.in, result.reads);
  add(each.out, result.writes);
  result.writes.insert(result.writes.end(), each.writes.begin(), each.writes.end());
  return result;
}

}  // namespace overdrive::replay
