// What a Checkpoint node and its Recompute node share: the region, its inputs, and what was recomputed.
// Owned by both. Recompute puts a tape in, Checkpoint takes it out; backwards of one graph on several
// threads may do so at once. When each runs is the engine's business.
#pragma once

#include "checkpoint/tape.h"
#include "engine/base/mutex.h"
#include "hooks/hooks.h"

#include <memory>
#include <vector>

namespace overdrive::checkpoint {

class Segment {
 public:
  Segment(Function function, const Tensors& inputs, const Options& options);

  // The first run. Tensors without history.
  Tensors run(const Tensors& inputs) { return region_.run_first(inputs, /*graph=*/false); }

  // Runs the region again and keeps the tape for take(). An error where its inputs are gone, or were changed.
  void recompute(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  // The tape, made now if nobody has made one. It is used once.
  std::unique_ptr<Tape> take(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);

  void check_backward() const { region_.check_backward(); }
  // The graph is not kept: lets the inputs go.
  void release() OVERDRIVE_EXCLUDES(mutex_);

 private:
  std::unique_ptr<Tape> make_tape(base::Node& node);

  Region region_;
  std::vector<hooks::SavedTensor> inputs_;  // as the members of a node: a backward that keeps its graph reads

  base::Mutex mutex_;
  std::unique_ptr<Tape> tape_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::checkpoint
