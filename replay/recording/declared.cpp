#include "replay/recording/declared.h"

#include <torch/nn/module.h>

#include <string_view>

namespace overdrive::replay {

namespace {

bool depends_on_mode(std::string_view name) {
  return name.find("dropout") != name.npos || name.find("batch_norm") != name.npos ||
         name.find("rrelu") != name.npos || name.starts_with("aten::bernoulli_");
}

// A tensor of numbers from outside that goes on from its old values, as a target network or an average.
// Gradients are an optimizer's to look after.
bool is_state(const Program& program, size_t op, int memory) {
  if (program.memories[memory].origin != Origin::kOutside || program.is_gradient(memory)) return false;
  const bool floats = std::any_of(program.values.begin(), program.values.end(), [&](const Value& value) {
    return value.memory == memory && c10::isFloatingType(value.type);
  });
  return floats && program.carries_on(op, memory);
}

}  // namespace

std::vector<torch::optim::Optimizer*> optimizers_of(const CaptureOptions& options) {
  std::vector<torch::optim::Optimizer*> all = options.optimizers;
  if (options.optimizer) all.push_back(options.optimizer);
  return all;
}

ModuleModes::ModuleModes(const std::vector<std::shared_ptr<torch::nn::Module>>& roots) {
  for (const auto& root : roots) {
    for (const auto& module : root->modules()) {
      modes_.push_back({module, module->is_training(), module->children(), options_of(*module)});
    }
  }
}

bool ModuleModes::hold() const {
  for (const Mode& mode : modes_) {
    if (mode.module->is_training() != mode.training || mode.module->children() != mode.children) return false;
    for (const WatchedValue& value : mode.options) {
      if (!value.holds()) return false;
    }
  }
  return true;
}

bool ModuleModes::same_as(const ModuleModes& other) const {
  const auto same_value = [](const WatchedValue& a, const WatchedValue& b) { return a.bytes == b.bytes; };
  return std::equal(modes_.begin(), modes_.end(), other.modes_.begin(), other.modes_.end(),
                    [&](const Mode& a, const Mode& b) {
                      return a.module == b.module && a.training == b.training && a.children == b.children &&
                             std::equal(a.options.begin(), a.options.end(), b.options.begin(), b.options.end(),
                                        same_value);
                    });
}

Refusal undeclared(const ReplayRun& run, const CaptureOptions& options, const NumbersOfOptimizers* numbers) {
  const auto& leaves = run.guard().leaf_memories();
  const auto& operators = run.program().operators;
  const std::string& unseen = run.program().unseen_numbers;
  const bool are_declared = options.constant_numbers || unseen.empty();
  const auto& memories = run.program().memories;
  const bool any_array =
      std::any_of(memories.begin(), memories.end(), [](const Memory& m) { return m.is_array; });
  if (any_array && !are_declared) {
    return c10::str("An array becomes a tensor in the function, as by from_numpy() or as an index, and ",
                    unseen, "; make the tensor outside of the function.");
  }
  for (size_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators[i];
    if (options.modules.empty() && !options.constant_modes && depends_on_mode(op.name)) {
      return {c10::str(op.name,
                       " depends on train() and eval(), which a replay does not see; give the module by "
                       ".modules, or promise .constant_modes."),
              op.name};
    }
    if (are_declared || (numbers && numbers->is_update(i)) || !run.program().changes_by_a_number(i)) continue;
    for (const int memory : op.writes) {
      const bool parameter = std::find(leaves.begin(), leaves.end(), memory) != leaves.end();
      if (!parameter && !is_state(run.program(), i, memory)) continue;
      return {c10::str(op.name, " changes a ", parameter ? "parameter" : "tensor that lives on",
                       " by a number, and ", unseen,
                       "; give the optimizer by .optimizer, keep the number in a tensor, or promise "
                       ".constant_numbers."),
              op.name};
    }
  }
  return "";
}

}  // namespace overdrive::replay
