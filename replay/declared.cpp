#include "replay/declared.h"

#include <torch/nn/module.h>

#include <string_view>

namespace overdrive::replay {

namespace {

bool depends_on_mode(std::string_view name) {
  return name.find("dropout") != name.npos || name.find("batch_norm") != name.npos ||
         name.find("rrelu") != name.npos || name.starts_with("aten::bernoulli_");
}

}  // namespace

ModuleModes::ModuleModes(const std::vector<std::shared_ptr<torch::nn::Module>>& roots) {
  for (const auto& root : roots) {
    for (auto& module : root->modules()) {
      const bool training = module->is_training();
      modes_.emplace_back(std::move(module), training);
    }
  }
}

bool ModuleModes::hold() const {
  for (const auto& [module, training] : modes_) {
    if (module->is_training() != training) return false;
  }
  return true;
}

std::string undeclared(const ReplayRun& run, const CaptureOptions& options) {
  const auto& leaves = run.guard().leaf_memories();
  for (const Operator& op : run.program().operators) {
    if (options.modules.empty() && !options.constant_modes && depends_on_mode(op.name)) {
      return c10::str(op.name,
                      " depends on train() and eval(), which a replay does not see; give the module by "
                      ".modules, or promise .constant_modes.");
    }
    if (options.optimizer || options.constant_numbers || !op.changes_by_a_number()) continue;
    for (const int memory : op.writes) {
      if (std::find(leaves.begin(), leaves.end(), memory) == leaves.end()) continue;
      return c10::str(
          op.name,
          " changes a parameter by a number, and a replay would not see when the number changes; give "
          "the optimizer by .optimizer, or promise .constant_numbers.");
    }
  }
  return "";
}

}  // namespace overdrive::replay
