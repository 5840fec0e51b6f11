// The proof that a replay has eager's bits: one call runs eagerly, then once more as a replay from the state
// before it, and everything that lives on is compared. Runs on the calling thread; owns nothing after.
#pragma once

#include "replay/record/recorder.h"
#include "replay/run/replay_run.h"

namespace overdrive::replay {

// The outcome of a checked call. The state afterwards is that of the eager run in every case.
struct CheckedCall {
  // The function's results, detached.
  std::vector<at::Tensor> results;
  // The program of this call, if it may be replayed from now on.
  std::unique_ptr<ReplayRun> run;
  // Why not: a difference to `before`, worth another recording, or a refusal.
  std::string difference;
  std::string refusal;
};

// Hooks of a caller into a checked call.
struct CheckParts {
  const Function& function;
  const std::vector<at::Tensor>& buffers;
  // Compares this recording with the one before, notes more in it; a sentence when they differ.
  std::function<std::string(Program&)> compare;
  // Called with the new run before it is tried, with what eager left behind: sets numbers that vary.
  std::function<void(ReplayRun&)> prepare;
};

// Everything that a replay may change, at one moment: to take a replay back, and to compare it with an eager
// call.
class ReplayedState {
 public:
  explicit ReplayedState(const ReplayRun& run);
  // The same memories now.
  ReplayedState now() const { return ReplayedState(state_.now()); }
  void restore() const { state_.restore(); }
  // Compares with the eager call that another run of the same program was bound to, right after it.
  std::string difference_from(const ReplayRun& eager) const;

 private:
  explicit ReplayedState(Snapshot state) : state_(std::move(state)) {}

  Snapshot state_;
};

// `before`: the recording of an earlier call with the same looks.
CheckedCall check_call(const Program& before, const CheckParts& parts);

}  // namespace overdrive::replay
