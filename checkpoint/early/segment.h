// What a Checkpoint node and its Recompute node share: the region, its inputs, and what was recomputed.
// Owned by both. Recompute puts a tape in, Checkpoint takes it out; backwards of one graph on several
// threads may do so at once. When each runs is the engine's business; what may begin before, look_ahead's.
#pragma once

#include "checkpoint/ahead/ahead_run.h"
#include "checkpoint/region/saved_inputs.h"
#include "checkpoint/region/shared_outputs.h"
#include "checkpoint/region/tape.h"
#include "engine/base/mutex.h"

#include <memory>
#include <optional>

namespace overdrive::checkpoint {

class Segment {
 public:
  Segment(Function function, const Tensors& inputs, const Options& options);
  // Waits for a recomputation that was ordered and never used.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The first run. Tensors without history.
  Tensors run(const Tensors& inputs);

  // Runs the region again and keeps the tape for take(). An error where its inputs are gone, or were changed.
  void recompute(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  // The tape, made now if nobody has made one. It is used once.
  std::unique_ptr<Tape> take(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);

  // Whether the region may run again before its turn, and where; known after the first run. Its own thread is
  // that of all regions on its device.
  enum class Ahead { kNo, kOnItsThread, kAnywhere };
  Ahead how_ahead() const;
  // What all its tensors are on, inputs and outputs; none where they are not together.
  const std::optional<c10::Device>& device() const { return device_; }
  // Orders that from inside a backward; recompute() will find it. Null when it was ordered already.
  std::shared_ptr<AheadRun> order_ahead() OVERDRIVE_EXCLUDES(mutex_);

  const Options& options() const { return region_.options(); }
  void check_backward() const { region_.check_backward(); }
  // The graph is not kept: lets the inputs go.
  void release() OVERDRIVE_EXCLUDES(mutex_);

 private:
  std::unique_ptr<Tape> make_tape(const Tensors& inputs) const;
  std::unique_ptr<Tape> make_tape_ahead() const;
  std::unique_ptr<Tape> take_ahead() OVERDRIVE_EXCLUDES(mutex_);
  // Nobody will ask for what was ordered; waits for it where it runs just now.
  void call_off_ahead() OVERDRIVE_EXCLUDES(mutex_);

  Region region_;
  std::optional<c10::Device> device_;
  base::StreamMark first_run_;  // its end, where the region may run again on another stream
  SavedInputs inputs_;
  SharedOutputs shared_outputs_;

  base::Mutex mutex_;
  std::unique_ptr<Tape> tape_ OVERDRIVE_GUARDED_BY(mutex_);
  std::shared_ptr<AheadRun> ahead_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::checkpoint
