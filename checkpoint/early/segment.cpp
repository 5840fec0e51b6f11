#include "checkpoint/early/segment.h"

#include "checkpoint/ahead/ahead_streams.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// Where a region may run again before its turn: the device of all of them, if it is the CPU or has streams.
std::optional<c10::Device> common_device(const Tensors& inputs, const Tensors& outputs) {
  std::optional<c10::Device> common;
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined()) continue;
      if (common && *common != tensor.device()) return std::nullopt;
      common = tensor.device();
    }
  }
  const bool known = common && (common->is_cpu() || at::getAccelerator() == common->type());
  return known ? common : std::nullopt;
}

// The tape, or null; what frees it or goes on with it comes after it on the streams.
std::unique_ptr<Tape> finish(AheadRun& run) {
  std::unique_ptr<Tape> tape = run.take();
  if (tape) tape->wait();
  return tape;
}

}  // namespace

Segment::Segment(Function function, const Tensors& inputs, const Options& options)
    : region_(std::move(function), options), inputs_(inputs) {}

Segment::~Segment() {
  try {
    call_off_ahead();
  } catch (const std::exception&) {  // of a device that is broken, and will say so
  }
}

void Segment::call_off_ahead() {
  std::shared_ptr<AheadRun> run;
  {
    const base::MutexLock lock(mutex_);
    run.swap(ahead_);
  }
  if (run) finish(*run);
}

Tensors Segment::run(const Tensors& inputs) {
  Tensors outputs = region_.run_first(inputs, /*graph=*/false);
  shared_outputs_ = SharedOutputs(outputs);
  if (options().ahead == 0) return outputs;
  if (!inputs_.have_hooks()) device_ = common_device(inputs, outputs);
  if (device_) first_run_ = base::StreamMark::here(*device_);
  return outputs;
}

std::unique_ptr<Tape> Segment::make_tape(const Tensors& inputs) const {
  return std::make_unique<Tape>(region_, inputs, requiring_grad(inputs));
}

// On a device, on a stream of its own that waits for what the first run read, and not for the gradients under
// way.
std::unique_ptr<Tape> Segment::make_tape_ahead() const {
  const Tensors inputs = inputs_.unpack();
  if (device_->is_cpu()) return make_tape(inputs);
  const c10::StreamGuard aside(next_ahead_stream(*device_, static_cast<size_t>(options().ahead) + 1));
  first_run_.wait();
  for (const at::Tensor& input : inputs) {
    if (input.defined()) base::note_use_here(input);
  }
  std::unique_ptr<Tape> tape = make_tape(inputs);
  tape->note_stream(*device_);
  return tape;
}

void Segment::recompute(base::Node& node) {
  std::unique_ptr<Tape> tape = take_ahead();
  if (tape == nullptr) tape = make_tape(inputs_.unpack(&node));
  const base::MutexLock lock(mutex_);
  tape_.swap(tape);  // one that a failed backward left behind goes when the lock is gone
}

std::unique_ptr<Tape> Segment::take(base::Node& node) {
  shared_outputs_.check(region_.name());
  std::unique_ptr<Tape> tape;
  {
    const base::MutexLock lock(mutex_);
    tape.swap(tape_);
  }
  return tape ? std::move(tape) : make_tape(inputs_.unpack(&node));
}

Segment::Ahead Segment::how_ahead() const {
  // Without its random numbers, nobody knows whether it draws any.
  if (!device_ || !options().preserve_rng) return Ahead::kNo;
  // The worker of a device must not set the CPU's generator back: the calling thread may be drawing.
  if (!device_->is_cpu()) return region_.draws_on_cpu() ? Ahead::kNo : Ahead::kOnItsThread;
  return region_.draws_random_numbers() ? Ahead::kOnItsThread : Ahead::kAnywhere;
}

std::shared_ptr<AheadRun> Segment::order_ahead() {
  const int task = torch::autograd::get_current_graph_task_id();
  auto run = std::make_shared<AheadRun>(task, [this] { return make_tape_ahead(); });
  std::shared_ptr<AheadRun> other;
  {
    const base::MutexLock lock(mutex_);
    if (ahead_ && ahead_->graph_task() == task) return nullptr;
    other = std::exchange(ahead_, run);
  }
  if (other) finish(*other);  // of a backward that failed, or of one on another thread
  return run;
}

std::unique_ptr<Tape> Segment::take_ahead() {
  std::shared_ptr<AheadRun> run;
  {
    const base::MutexLock lock(mutex_);
    run.swap(ahead_);
  }
  if (run == nullptr) return nullptr;
  std::unique_ptr<Tape> tape = finish(*run);
  return run->graph_task() == torch::autograd::get_current_graph_task_id() ? std::move(tape) : nullptr;
}

// A graph may be dropped while a run ahead still reads the inputs.
void Segment::release() {
  call_off_ahead();
  inputs_.release();
}

}  // namespace overdrive::checkpoint
