// The numbers of all optimizers of a program, each of which has OptimizerNumbers of its own. Owned by a
// Recording; one thread at a time. Knows which operators are updates, so that no other one changes a parameter
// by a number.
#pragma once

#include "replay/optimizers/optimizer_numbers.h"

#include <deque>
#include <string>
#include <vector>

namespace overdrive::replay {

class NumbersOfOptimizers {
 public:
  explicit NumbersOfOptimizers(const std::vector<torch::optim::Optimizer*>& optimizers);

  // Of an optimizer that is not understood.
  std::string refusal() const;
  // Finds each update in the recording of a call that has just ended. Returns a refusal, or nothing.
  std::string find(const Program& program);
  // After it: a change by another number, as a refusal; or nothing.
  Refusal change_by_a_number(const Program& program) const;
  bool may_differ(size_t op, size_t argument) const;
  bool is_update(size_t op) const;
  void declare(ReplayRun& run) const;
  void bind(ReplayRun& run);

  // Why the program does not fit the optimizers any more, or null. Computes the numbers of the next step.
  Difference difference();
  void set_for_next_step();
  void count_step();

  // For a step file.
  const std::deque<OptimizerNumbers>& all() const { return all_; }

 private:
  std::deque<OptimizerNumbers> all_;
};

}  // namespace overdrive::replay
