// Calls that run eagerly for a while, because recordings cost more than replays bring. Owned by a
// CapturedFunction; one thread at a time. Counts calls, and does not see what was recorded.
#pragma once

#include "replay/capture_options.h"
#include "replay/record/refusal.h"

#include <cstdint>

namespace overdrive::replay {

class Backoff {
 public:
  // Before a call: whether it belongs to a rest. Counts it.
  bool take_call();
  // Why the calls rest, and for how long still.
  const Refusal& reason() const { return reason_; }
  uint64_t left() const { return left_; }
  bool is_resting() const { return left_ > 0; }

  // A call has a recording, or needs a new one. True: there were very many of these in turn, and a rest begins.
  void note_known() { new_in_turn_ = 0; }
  bool note_new();
  // After calls that were recorded. `useful`: recordings that some program is made of. `last_reason`: why a
  // step was recorded anew; empty where it was not.
  void weigh(const CaptureStats& stats, uint64_t useful, const Refusal& last_reason);
  void end() { left_ = new_in_turn_ = 0; }

 private:
  void begin(Refusal reason);

  // Calls of the rest, how many rests there were, and what recordings have cost until then.
  uint64_t left_ = 0;
  uint64_t rests_ = 0;
  int64_t forgiven_ = 0;
  // Calls in turn that no recording was for.
  uint64_t new_in_turn_ = 0;
  Refusal reason_;
};

// What a program costs that is kept, for as long as it is: it may bring replays yet.
constexpr uint64_t kRecordingsOfAProgram = 3;

}  // namespace overdrive::replay
