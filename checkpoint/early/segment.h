// The shared part of a Checkpoint node and its Recompute node: the region, its inputs, and the tape that was
// made of them. Owned by both nodes. Recompute puts a tape in, Checkpoint takes it out; backwards of one graph
// on several threads may do so at once. Leaves out when each node runs, which is the engine's business.
#pragma once

#include "checkpoint/ahead/ahead_region.h"
#include "checkpoint/early/shared_outputs.h"
#include "checkpoint/region/saved_inputs.h"
#include "engine/base/mutex.h"

namespace overdrive::checkpoint {

class Segment {
 public:
  Segment(Function function, const Tensors& inputs, const Options& options);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The first run. Tensors without history.
  Tensors run(const Tensors& inputs);

  // Runs the region again and keeps the tape for take(). An error where its inputs are gone, or were changed.
  void recompute(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  // The tape, made now if nobody has made one. It is used once.
  TapePtr take(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);

  AheadRegion& ahead() { return ahead_; }
  void check_backward() const { region_.check_backward(); }
  // The graph is not kept: lets the inputs go.
  void release() OVERDRIVE_EXCLUDES(mutex_);

 private:
  Region region_;
  SavedInputs inputs_;
  SharedOutputs shared_outputs_;

  base::Mutex mutex_;
  TapePtr tape_ OVERDRIVE_GUARDED_BY(mutex_);

  AheadRegion ahead_;  // last: its destructor waits for a run of the region
};

}  // namespace overdrive::checkpoint
