// The proof that a replay has eager's bits: one call runs eagerly, then twice more as a replay from the state
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
  // The recording, where there is no run.
  std::unique_ptr<Program> program;
  // Why not: a difference to `before`, worth another recording, or a refusal.
  Refusal difference;
  Refusal refusal;
  // Whether the refusal is one of the recording, which says nothing of replays before.
  bool is_unrecordable = false;
  // Whether the difference may come from another thread, which wrote to memory that the call reads.
  bool is_unsure = false;
};

// What the caller brings to a checked call.
struct CheckParts {
  const Function& function;
  const std::vector<at::Tensor>& inputs;
  // With the elements of the inputs; the replay gets these.
  const std::vector<at::Tensor>& buffers;
  // Compares this recording with the one before, notes more in it; not empty when they differ.
  std::function<Refusal(Program&)> compare;
  // Makes the passes over the recording, after it was compared.
  std::function<Passes(const Program&)> passes;
  // Weights whose casts are among the inputs.
  const std::vector<KeptCast>& casts;
  // Called with the new run before it is tried, with what eager left behind: sets numbers that vary.
  std::function<void(ReplayRun&)> prepare;
};

// Everything that a replay changes, at one moment: to take a replay back, and to compare it with an eager
// call.
class ReplayedState {
 public:
  explicit ReplayedState(const ReplayRun& run);
  // The same memories now.
  ReplayedState now() const { return ReplayedState(state_.now()); }
  void restore() const { state_.restore(); }
  // Compares with the eager call that another run of the same program was bound to, right after it.
  Refusal difference_from(const ReplayRun& eager) const;

 private:
  explicit ReplayedState(Snapshot state) : state_(std::move(state)) {}

  Snapshot state_;
};

// Digests of the memory that a program reads and no operator of it writes: another thread may fill it at any
// time, so that it is neither copied nor put back. Looks at the first bytes of each.
class ReadMemory {
 public:
  ReadMemory() = default;
  explicit ReadMemory(const Program& program);
  bool operator==(const ReadMemory& other) const = default;
  // Whether it is there in full. What is not seen may have changed.
  bool is_complete() const { return complete_; }

 private:
  std::vector<uint64_t> digests_;
  bool complete_ = true;
};

// `before`: the recording of an earlier call with the same signature. `read_before`: what it reads, at that
// call's end.
CheckedCall check_call(const Program& before, const ReadMemory& read_before, const CheckParts& parts);

}  // namespace overdrive::replay
