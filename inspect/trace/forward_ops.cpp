#include "inspect/trace/forward_ops.h"

#include "engine/operators/forward_observer.h"

#include <ATen/SequenceNumber.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace overdrive::inspect {
namespace {

// A plain value, as the observer in it.
struct OpsOfThread {
  std::vector<std::shared_ptr<TraceFile>>* files = nullptr;  // null when there are none
  engine::ForwardObserver observer;
  uint64_t next_unclaimed = 0;  // numbers of nodes below it have their operator
};
thread_local OpsOfThread ops_of_thread;

struct Begun final : at::ObserverContext {
  uint64_t begin = static_cast<uint64_t>(c10::getApproximateTime());
};

std::unique_ptr<at::ObserverContext> op_begins(const at::RecordFunction&) {
  return ops_of_thread.files == nullptr ? nullptr : std::make_unique<Begun>();
}

// An operator knows the number that the next node of its thread gets. The node is the operator's when the
// number was given away meanwhile and no operator inside has it.
void op_ends(const at::RecordFunction& op, at::ObserverContext* context) {
  OpsOfThread& ops = ops_of_thread;
  if (context == nullptr || ops.files == nullptr) return;
  TraceRecord record{.begin = static_cast<Begun*>(context)->begin,
                     .end = static_cast<uint64_t>(c10::getApproximateTime()),
                     .forward_thread = op.threadId(),
                     .kind = TraceRecord::Kind::kForward};
  const auto number = static_cast<uint64_t>(op.seqNr());
  if (op.seqNr() >= 0 && at::sequence_number::peek() > number && ops.next_unclaimed <= number) {
    ops.next_unclaimed = number + 1;
    record.sequence = number;
  }
  for (const auto& file : *ops.files) {
    RecordRing& ring = file->ring();
    record.name = file->name_number(ring, op.name());
    file->push(ring, record);
  }
}

}  // namespace

ForwardOps::ForwardOps(std::shared_ptr<TraceFile> file) : file_(std::move(file)) {
  OpsOfThread& ops = ops_of_thread;
  if (ops.files == nullptr) {
    ops.files = new std::vector<std::shared_ptr<TraceFile>>;
    ops.observer.start(at::RecordFunctionCallback(&op_begins, &op_ends));
  }
  ops.files->push_back(file_);
}

// On another thread there is nothing to find, and the thread of the scope drops what its file no longer takes.
ForwardOps::~ForwardOps() {
  OpsOfThread& ops = ops_of_thread;
  if (ops.files == nullptr) return;
  const auto found = std::find(ops.files->begin(), ops.files->end(), file_);
  if (found == ops.files->end()) return;
  ops.files->erase(found);
  if (!ops.files->empty()) return;
  ops.observer.stop();
  delete std::exchange(ops.files, nullptr);
}

void ForwardOps::pause() { ops_of_thread.observer.pause(); }
void ForwardOps::resume() { ops_of_thread.observer.resume(); }

}  // namespace overdrive::inspect
