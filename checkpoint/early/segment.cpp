#include "checkpoint/early/segment.h"

#include <utility>

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

}  // namespace overdrive::checkpoint
