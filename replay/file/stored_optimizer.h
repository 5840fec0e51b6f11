// An optimizer of LibTorch as a step file has it: options as numbers, counts of steps, and where the numbers
// stand in a program. Plain values but for OptimizerOfFile, which a loaded step owns; one thread. The formulas
// are those of optimizers/update_rules.
#pragma once

#include "replay/file/stored_step.h"
#include "replay/optimizers/update_rules.h"
#include "replay/run/replay_run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::replay {

std::vector<double> numbers_of_options(OptimizerKind kind, const torch::optim::OptimizerOptions& options);
// The names of these numbers; the first one is the learning rate.
const std::vector<std::string>& names_of_options(OptimizerKind kind);

// Throws where kind, groups or counts cannot be.
void check_optimizer(const StoredOptimizer& optimizer);
std::vector<UpdateOperator> numbers_of_update(const StoredOptimizer& optimizer, uint32_t group, int64_t step);

// Sets the numbers of the next step in a run, and counts steps. The tables outlive it.
class UpdatesOfRun {
 public:
  UpdatesOfRun(std::vector<StoredOptimizer>& optimizers, const std::vector<StoredUpdate>& updates);

  // Whether the operator stands between the first and the last number of an optimizer.
  bool is_update(size_t op) const;
  // Before the steps of the run are checked.
  void declare(ReplayRun& run) const;
  // The run whose numbers are set from now on.
  void bind(ReplayRun& run);
  void set_for_next_step() const;
  void count_step() const;

 private:
  template <typename Visit>
  void each_number(const Visit& visit) const;

  std::vector<StoredOptimizer>& optimizers_;
  const std::vector<StoredUpdate>& updates_;
  // Of each optimizer: the first and the last operator that has a number of it.
  std::vector<std::pair<int32_t, int32_t>> ranges_;
  // Of each place in turn.
  std::vector<Step::State*> states_;
};

}  // namespace overdrive::replay
