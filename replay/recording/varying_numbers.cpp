#include "replay/recording/varying_numbers.h"

#include "replay/record/compare.h"
#include "replay/recording/declared.h"

namespace overdrive::replay {

VaryingNumbers::VaryingNumbers(const CaptureOptions& options, const GivenNumbers& given)
    : are_constant_(options.constant_numbers), given_(given) {
  const std::vector<torch::optim::Optimizer*> optimizers = optimizers_of(options);
  if (!optimizers.empty()) optimizers_ = std::make_unique<NumbersOfOptimizers>(optimizers);
}

std::string VaryingNumbers::refusal() const { return optimizers_ ? optimizers_->refusal() : ""; }

Refusal VaryingNumbers::find_updates(const Program& now) {
  return optimizers_ ? Refusal(optimizers_->find(now)) : now.refusal;
}

// An optimizer's number may have a given one's values by chance.
Refusal VaryingNumbers::find_given(const Program& before, Program& now) {
  return given_.find(before, now, [&](size_t op, size_t argument) {
    return optimizers_ && optimizers_->may_differ(op, argument);
  });
}

Refusal VaryingNumbers::unseen_change(const Program& now) const {
  return optimizers_ && !are_constant_ ? optimizers_->change_by_a_number(now) : Refusal();
}

Refusal VaryingNumbers::difference(const Program& before, const Program& now) {
  return first_difference(before, now, [&](size_t op, size_t argument) {
    return (optimizers_ && optimizers_->may_differ(op, argument)) || given_.is_number(op, argument);
  });
}

bool VaryingNumbers::is_read_by(size_t op) const {
  return (optimizers_ && optimizers_->is_update(op)) || given_.is_read_by(op);
}

void VaryingNumbers::declare(ReplayRun& run) const {
  if (optimizers_) optimizers_->declare(run);
  given_.declare(run);
}

void VaryingNumbers::bind(ReplayRun& run) {
  if (optimizers_) optimizers_->bind(run);
  given_.bind(run);
}

void VaryingNumbers::set() {
  if (optimizers_) optimizers_->set_for_next_step();
  given_.set_for_this_call();
}

void VaryingNumbers::count_step() {
  if (optimizers_) optimizers_->count_step();
}

}  // namespace overdrive::replay
