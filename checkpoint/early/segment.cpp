#include "checkpoint/early/segment.h"

#include <optional>

namespace overdrive::checkpoint {

Segment::Segment(Function function, const Tensors& inputs, const Options& options)
    : region_(std::move(function), options), inputs_(inputs), ahead_(region_, inputs_) {}

Tensors Segment::run(const Tensors& inputs) {
  Tensors outputs = region_.run_first(inputs, /*graph=*/false);
  shared_outputs_ = SharedOutputs(outputs);
  ahead_.note_first_run(inputs, outputs);
  return outputs;
}

void Segment::recompute(base::Node& node) {
  TapePtr tape = ahead_.take();
  if (tape == nullptr) tape = std::make_shared<Tape>(region_, inputs_.unpack(&node));
  const base::MutexLock lock(mutex_);
  tape_.swap(tape);  // one that a failed backward left behind goes when the lock is gone
}

TapePtr Segment::take(base::Node& node) {
  shared_outputs_.check(region_.name());
  TapePtr tape;
  {
    const base::MutexLock lock(mutex_);
    tape.swap(tape_);
  }
  return tape ? tape : std::make_shared<Tape>(region_, inputs_.unpack(&node));
}

// A graph may be dropped while a run ahead still reads the inputs.
void Segment::release() {
  ahead_.call_off();
  inputs_.release();
}

base::variable_list Checkpoint::apply(base::variable_list&& gradients) {
  check_backward();
  base::variable_list of_inputs = segment_->take(*this)->pull(gradients);
  of_inputs.insert(of_inputs.begin(), at::Tensor());  // the token's
  return of_inputs;
}

base::variable_list Recompute::apply(base::variable_list&& gradients) {
  (void)gradients;
  check_backward();
  std::optional<NextRegions> next;
  if (segment_->ahead().reach() > 0) next.emplace(*this, segment_->ahead());
  segment_->recompute(*this);
  if (next) next->run_the_others();
  return {at::Tensor()};
}

}  // namespace overdrive::checkpoint
