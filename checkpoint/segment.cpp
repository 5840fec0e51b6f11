#include "checkpoint/segment.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// Of the last tape that was made where there is a limit: what another one is taken to need.
std::atomic<int64_t> usual_bytes{0};

bool all_on_cpu(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return !tensor.defined() || tensor.is_cpu(); });
}

}  // namespace

Segment::Segment(Function function, const Tensors& inputs, const Options& options)
    : region_(std::move(function), options) {
  inputs_.reserve(inputs.size());
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
}

Segment::~Segment() { call_off_ahead(); }

void Segment::call_off_ahead() {
  std::shared_ptr<AheadRun> run;
  {
    const base::MutexLock lock(mutex_);
    run.swap(ahead_);
  }
  if (run) run->take();
}

Tensors Segment::run(const Tensors& inputs) {
  Tensors outputs = region_.run_first(inputs, /*graph=*/false);
  // An input that hooks have packed may take another region's second run to come back.
  const bool hooked = std::any_of(inputs_.begin(), inputs_.end(),
                                  [](const hooks::SavedTensor& input) { return input.has_hooks(); });
  may_run_anywhere_ = !hooked && all_on_cpu(inputs) && all_on_cpu(outputs);
  return outputs;
}

std::unique_ptr<Tape> Segment::make_tape(base::Node* node) {
  Tensors inputs;
  inputs.reserve(inputs_.size());
  for (const hooks::SavedTensor& input : inputs_) {
    inputs.push_back(node != nullptr ? input.unpack(*node) : input.unpack());
  }
  auto tape = std::make_unique<Tape>(region_, inputs, requiring_grad(inputs));
  if (options().ahead_bytes > 0) usual_bytes = tape->bytes();
  return tape;
}

void Segment::recompute(base::Node& node) {
  std::unique_ptr<Tape> tape = take_ahead();
  if (tape == nullptr) tape = make_tape(&node);
  const base::MutexLock lock(mutex_);
  tape_.swap(tape);  // one that a failed backward left behind goes when the lock is gone
}

std::unique_ptr<Tape> Segment::take(base::Node& node) {
  std::unique_ptr<Tape> tape;
  {
    const base::MutexLock lock(mutex_);
    tape.swap(tape_);
  }
  return tape ? std::move(tape) : make_tape(&node);
}

Segment::Ahead Segment::how_ahead() const {
  // Without its random numbers, nobody knows whether it draws any.
  if (!may_run_anywhere_ || !options().preserve_rng) return Ahead::kNo;
  return region_.draws_random_numbers() ? Ahead::kOnThisThread : Ahead::kAnywhere;
}

std::shared_ptr<AheadRun> Segment::order_ahead() {
  const int64_t limit = options().ahead_bytes;
  if (limit > 0 && AheadRun::bytes_held() + usual_bytes > limit) return nullptr;
  const int task = torch::autograd::get_current_graph_task_id();
  auto run = std::make_shared<AheadRun>(task, [this] { return make_tape(nullptr); });
  std::shared_ptr<AheadRun> other;
  {
    const base::MutexLock lock(mutex_);
    if (ahead_ && ahead_->graph_task() == task) return nullptr;
    other = std::exchange(ahead_, run);
  }
  if (other) other->take();  // of a backward that failed, or of one on another thread
  return run;
}

std::unique_ptr<Tape> Segment::take_ahead() {
  std::shared_ptr<AheadRun> run;
  {
    const base::MutexLock lock(mutex_);
    run.swap(ahead_);
  }
  if (run == nullptr) return nullptr;
  std::unique_ptr<Tape> tape = run->take();
  return run->graph_task() == torch::autograd::get_current_graph_task_id() ? std::move(tape) : nullptr;
}

// A graph may be dropped while a run ahead still reads the inputs.
void Segment::release() {
  call_off_ahead();
  for (hooks::SavedTensor& input : inputs_) input.release();
}

}  // namespace overdrive::checkpoint
