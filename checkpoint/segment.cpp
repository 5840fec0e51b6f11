#include "checkpoint/segment.h"

#include <utility>

namespace overdrive::checkpoint {

Segment::Segment(Function function, const Tensors& inputs, const Options& options)
    : region_(std::move(function), options) {
  inputs_.reserve(inputs.size());
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
}

std::unique_ptr<Tape> Segment::make_tape(base::Node& node) {
  Tensors inputs;
  inputs.reserve(inputs_.size());
  for (const hooks::SavedTensor& input : inputs_) inputs.push_back(input.unpack(node));
  return std::make_unique<Tape>(region_, inputs);
}

void Segment::recompute(base::Node& node) {
  std::unique_ptr<Tape> tape = make_tape(node);
  base::MutexLock lock(mutex_);
  tape_.swap(tape);  // one that a failed backward left behind goes when the lock is gone
}

std::unique_ptr<Tape> Segment::take(base::Node& node) {
  std::unique_ptr<Tape> tape;
  {
    base::MutexLock lock(mutex_);
    tape.swap(tape_);
  }
  return tape ? std::move(tape) : make_tape(node);
}

void Segment::release() {
  for (hooks::SavedTensor& input : inputs_) input.release();
}

}  // namespace overdrive::checkpoint
