// Fills the record of a step: operators on the thread that measures, nodes of the runs of every thread. Owned
// by the scope and by the runs that it watches; stop() ends its use of the record. Leaves to `remedies` what
// follows.
#pragma once

#include "engine/base/mutex.h"
#include "engine/node/run_watch.h"
#include "inspect/cost/step_record.h"

#include <ATen/record_function.h>

namespace overdrive::inspect {

class StepRecorder {
 public:
  explicit StepRecorder(StepRecord& record) : record_(&record) {}

  // The outermost operators, one after the other.
  void op_begins(const at::RecordFunction& op) OVERDRIVE_EXCLUDES(mutex_);
  void op_ends() OVERDRIVE_EXCLUDES(mutex_);

  // Reads the nodes and their saved tensors. Returns the place of the first one.
  size_t run_begins(const engine::RunFacts& facts) OVERDRIVE_EXCLUDES(mutex_);
  void node_begins(size_t place) OVERDRIVE_EXCLUDES(mutex_);
  void node_ends(size_t place) OVERDRIVE_EXCLUDES(mutex_);

  void stop() OVERDRIVE_EXCLUDES(mutex_);

 private:
  base::Mutex mutex_;
  StepRecord* record_ OVERDRIVE_GUARDED_BY(mutex_);  // null: stopped
};

}  // namespace overdrive::inspect
