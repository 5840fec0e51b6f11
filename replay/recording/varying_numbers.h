// The numbers of a program that are others in each replay: the optimizers', and those that the caller gives
// with a call. Owned by a Recording; one thread at a time. Other numbers are constants of the recording.
#pragma once

#include "replay/capture_options.h"
#include "replay/optimizers/numbers_of_optimizers.h"
#include "replay/run/call_numbers.h"

#include <memory>
#include <string>

namespace overdrive::replay {

class VaryingNumbers {
 public:
  VaryingNumbers(const CaptureOptions& options, const GivenNumbers& given);

  // Of an optimizer that is not understood.
  std::string refusal() const;
  // Null where the step has none.
  NumbersOfOptimizers* optimizers() const { return optimizers_.get(); }

  // A first recording has ended.
  void begin() { given_.begin(); }
  // Whether a recording now could tell the given numbers from constants.
  bool may_prove() const { return given_.may_prove(); }
  // Finds the updates in a recording that has just ended. Returns a refusal, or nothing.
  Refusal find_updates(const Program& now);
  // After it, the given numbers in a second recording. Returns a difference, or nothing.
  Refusal find_given(const Program& before, Program& now);
  // After both, a change by a number that is none of them. Returns a refusal, or nothing.
  Refusal unseen_change(const Program& now) const;
  // The first difference of two recordings, apart from these numbers; nothing when there is none.
  Refusal difference(const Program& before, const Program& now);
  // The recording did not stand.
  void forget(Program& now) { given_.forget(now); }
  // Whether the operator has another number in each replay.
  bool is_read_by(size_t op) const;

  // Tells the run of a recorded call which numbers vary. Before its steps are checked.
  void declare(ReplayRun& run) const;
  // The checked run is the one whose numbers are set from now on.
  void bind(ReplayRun& run);

  // Why the program does not fit the optimizers any more, or null.
  Difference difference() { return optimizers_ ? optimizers_->difference() : Difference(); }
  // Before a replay.
  void set();
  // After it.
  void count_step();

  void explain(std::ostream& out) const { given_.explain(out); }

 private:
  const bool are_constant_;
  std::unique_ptr<NumbersOfOptimizers> optimizers_;
  CallNumbers given_;
};

}  // namespace overdrive::replay
