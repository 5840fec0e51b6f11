// A region of the early form that may run again before its turn, and the tape that comes of it. A part of the
// region's segment. A backward begins it and the node of the region takes the tape, on any threads and at the
// same time; one that fails leaves no tape, and the node runs the region itself. `next_regions` decides when to
// begin.
#pragma once

#include "checkpoint/region/region.h"
#include "checkpoint/region/saved_inputs.h"
#include "checkpoint/region/tape.h"
#include "engine/base/mutex.h"

#include <memory>
#include <optional>

namespace overdrive::checkpoint {

class AheadRegion {
 public:
  // Both outlive this object.
  AheadRegion(const Region& region, const SavedInputs& inputs);
  // Waits for a recomputation that was begun and not used.
  ~AheadRegion();
  AheadRegion(const AheadRegion&) = delete;
  AheadRegion& operator=(const AheadRegion&) = delete;

  // The first run is over: where the region may run ahead is known from here on.
  void note_first_run(const Tensors& inputs, const Tensors& outputs);
  enum class Where {
    kInItsTurn,    // not ahead: when its node runs
    kOnItsThread,  // ahead, by the node of an earlier region on its device
    kAnywhere,     // ahead, on Overdrive's thread for regions
  };
  Where where() const;
  // The device of all inputs and outputs; none where they are not together.
  const std::optional<c10::Device>& device() const { return device_; }
  // How many regions this one has begun while its gradient is made.
  int64_t reach() const { return region_.options().ahead; }

  // Inside a backward: has the thread for recomputations run the region, or runs it here. Nothing where this
  // backward has begun it already.
  void begin_elsewhere() OVERDRIVE_EXCLUDES(mutex_);
  void run_here() OVERDRIVE_EXCLUDES(mutex_);
  // The tape that this backward ordered. Waits while it is being made. Null where nobody began it, and then
  // nobody will.
  TapePtr take() OVERDRIVE_EXCLUDES(mutex_);
  // Nobody will take a tape. Waits where one is being made.
  void call_off() OVERDRIVE_EXCLUDES(mutex_);

 private:
  class Order;

  std::shared_ptr<Order> order() OVERDRIVE_EXCLUDES(mutex_);
  TapePtr make_tape() const;

  const Region& region_;
  const SavedInputs& inputs_;
  // Fixed after the first run.
  std::optional<c10::Device> device_;
  base::StreamMark first_run_;  // its end, where the region may run again on another stream

  base::Mutex mutex_;
  std::shared_ptr<Order> order_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::checkpoint
