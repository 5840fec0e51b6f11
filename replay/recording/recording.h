// The recordings of one call signature, from the first eager call to the replays. Owned by a CapturedFunction,
// which finds the recording of a call; called by one thread at a time. The phases:
//
//   warm -> first (recorded) -> second (recorded, compared, replayed) -> check (replayed, then made eagerly and
//   compared) -> ready;  a guard that fails: an eager call, then first;  a difference: first;  a refusal: eager
//   for good
//
// recording.cpp tells the phases, recording_proof.cpp how a call is recorded and compared,
// recording_replays.cpp what a replay does, and recording_checks.cpp a call whose replay is in doubt.
//
// Threads: CapturedFunction calls each public function, on the thread whose call is under way; its Busy flag
// keeps other threads out, so nothing here is locked. A private function runs in call(). The exception is a
// part: its backward runs later, perhaps on another thread, and take_placeholders() locks what the two share.
#pragma once

#include "replay/capture_options.h"
#include "replay/file/program_to_save.h"
#include "replay/guard/leaf_flags.h"
#include "replay/guard/shared_memory.h"
#include "replay/guard/value_guards.h"
#include "replay/recording/call_signature.h"
#include "replay/recording/compared_replays.h"
#include "replay/recording/known_inputs.h"
#include "replay/recording/recorded_function.h"
#include "replay/recording/retry_budget.h"
#include "replay/recording/timed_calls.h"
#include "replay/recording/varying_numbers.h"
#include "replay/recording/wanted_casts.h"
#include "replay/run/self_check.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::replay {

class Recording {
 public:
  // `counts`: of a part; null for a whole step.
  Recording(const Function& function, const CaptureOptions& options, CaptureStats& stats,
            const std::vector<at::Tensor>& inputs, const std::vector<WatchedValue>& watched,
            const GivenNumbers& numbers, std::shared_ptr<PartCounts> counts);

  // Whether the call belongs to this recording: sizes, types, modes and watched values are the recording's.
  bool fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const {
    return signature_.fits(environment, inputs);
  }
  // Makes the call, eagerly, recorded or replayed. After fits(), and after declines() where there is a choice.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs);

  // Whether the program fits what the step uses from outside no more, and may fit again. Before call().
  bool declines();
  bool is_ready() const { return phase_ == Phase::kReady; }
  // Calls with other values are recorded from now on, and may change what this recording found.
  void note_new_values() {
    if (compared_beside_new_ < kMostComparedBesideNew) beside_new_ = kComparedBesideNew;
  }
  // The leaves whose gradients matter to the function, where the last call found some of them in another state
  // than the recording; else none.
  std::vector<WeakTensor> take_leaves_in_turn() { return std::exchange(leaves_in_turn_, {}); }
  // Whether a recording says which leaves require a gradient in calls that belong here.
  bool has_flags() const { return phase_ == Phase::kSecond || phase_ == Phase::kCheck; }
  // Of the program's memory, and about those of its tables.
  size_t bytes() const;
  // How often the function was recorded.
  uint64_t times_recorded() const { return times_recorded_; }
  const Refusal& outdated_reason() const { return outdated_reason_; }

  // False where autocast keeps casts of weights, which only a call makes.
  bool would_replay(const std::vector<at::Tensor>& inputs);
  bool wants_casts() const { return !casts_.empty(); }

  // What a step file has of it; none while its calls are not replayed.
  std::optional<ProgramToSave> to_save();
  // Whether what was recorded uses the memory of one of these, which the call was not given.
  bool has_met_one_of(const std::vector<at::Tensor>& tensors) const;
  // Whether the two differ in their inputs alone.
  bool has_values_of(const Recording& other) const { return signature_.has_values_of(other.signature_); }

  const Refusal& refusal() const { return refusal_; }
  void explain(std::ostream& out) const;
  // The inputs, and the lanes of the program; null where it has none.
  std::string lanes_json() const;
  // Not 0, and never that of another recording of the process.
  uint64_t number() const { return number_; }

 private:
  // Replays that are compared after calls with other values were recorded, and the most of them.
  static constexpr uint64_t kComparedBesideNew = 2;
  static constexpr uint64_t kMostComparedBesideNew = 16;
  enum class Phase : uint8_t {
    kWarm,     // calls are eager, as many as CaptureOptions::eager_calls says
    kFirst,    // the next call is recorded
    kSecond,   // the next call is recorded, compared with the first recording, and replayed on copies
    kCheck,    // the next call is replayed, then made eagerly and compared
    kReady,    // calls are replayed
    kRefused,  // calls are eager for good
  };
  using Tensors = std::vector<at::Tensor>;

  // The phases. call() goes down these three: the state of a part, the casts that autocast keeps, the phase.
  Tensors call_part_or_step(const Tensors& inputs);
  Tensors call_with_casts(const Tensors& inputs);
  Tensors call_phase(const Tensors& inputs);
  // The function itself, timed.
  Tensors eager(const Tensors& inputs);
  // In kFirst. Leads to kSecond, or to kRefused.
  Tensors record_first(const Tensors& inputs);
  // The next recording is compared with this one.
  void begin_proof(std::unique_ptr<Program> program);
  // In kSecond. Leads to kCheck where the two recordings and the replay are equal.
  Tensors record_second(const Tensors& inputs);
  // In kCheck. Leads to kReady where the replay and the eager call are equal.
  Tensors check(const Tensors& inputs);
  // Calls are eager for good.
  void refuse(Refusal refusal);
  // A recorder has a reason, which may be gone in a later call.
  void refuse_recorded(Refusal refusal);
  // The recording fits no more, and the next call is recorded.
  void outdated(Refusal reason);
  // The same for what the guards of the run have found.
  void outdated_by_guard(Refusal reason);
  // A recorded call differs from the one before.
  void note_difference(Refusal difference);

  // Replays, in kReady, recording_replays.cpp. replay() asks the guards, then one of the two below runs.
  Tensors replay(const Tensors& inputs);
  Tensors replay_step(const Tensors& inputs);
  Tensors replay_part(const Tensors& inputs);
  // The program runs next, and functions that run apart in it.
  void begin_run() const;
  // Runs the program. False: the run was taken back, and gradients that somebody holds are as before.
  bool run_keeping_gradients();
  // A replay was not taken back.
  void note_replay();
  // A call that is timed, until it is known whether replays are worth it.
  Tensors timed_call(const Tensors& inputs);
  // Whether weighed calls have shown that replays are slower: calls are eager then.
  bool gives_way();

  // Calls whose replay is that is checked, recording_checks.cpp. What may matter to the function, as far as its
  // recordings tell, is another one now: the call is made eagerly, recorded and compared.
  Tensors doubted(const Tensors& inputs, const std::string& what);
  // The same for gradients that the program leaves alone: some are there now and were not, or the other way.
  Tensors doubted_gradients(const Tensors& inputs, const char* what);
  // The same for data that the function may have read through a pointer.
  Tensors doubted_data(const Tensors& inputs, const char* what);
  // A replay, taken back, and the same call eagerly; an error when they differ.
  Tensors compared_replay(const Tensors& inputs);
  // A replay was taken back: an error, or an operator that told the program something else.
  Tensors eager_after_throw(const Tensors& inputs, const std::string& other_answer);

  // Recorded calls, recording_proof.cpp. The call eagerly on the inputs, recorded, and replayed on copies of
  // them.
  CheckedCall checked_call(const Tensors& inputs);
  // The same after a replay of the present program, whose outcome is compared, too. None when the replay threw.
  std::optional<CheckedCall> replay_and_check(const Tensors& inputs);
  // What differs between two recordings of equal calls; empty: nothing.
  Refusal compare(const Program& before, Program& now);
  // The passes that turn a program into one that runs.
  Passes passes(const Program& program) const;
  // Whether a recording met casts that autocast keeps and that are not known yet; then it is worth nothing.
  bool learns_casts(const Program& program);
  // Before a call is recorded.
  void note_recording();
  // After one: the memory that it used, for the guards.
  void note_memory(const Program& program);
  // The run that replays from now on, first in kCheck. release_run() gives it up.
  void adopt(std::shared_ptr<ReplayRun> run);
  // What was adopted is replayed from now on.
  void begin_replays(std::shared_ptr<ReplayRun> run);
  void release_run();

  // Guards, recording_state.cpp. Whether the call is one of those that are compared.
  bool is_compared() const { return compared_.has(replays_ + 1) || (beside_new_ > 0 && compared_.has_any()); }
  // Why the recording does not fit what it uses from outside.
  Difference outside_difference();
  // The same, or what declines() has found.
  Difference take_difference();
  static uint64_t next_number();

  // The function, and the calls that belong here.
  const CaptureOptions& options_;
  CaptureStats& stats_;
  const CallSignature signature_;
  const RecordedFunction function_;
  const ComparedReplays compared_;
  // As CaptureOptions::lanes.
  const int lanes_;
  const uint64_t number_ = next_number();

  // What recordings have shown.
  WantedCasts casts_;
  VaryingNumbers numbers_;
  KnownInputs inputs_;
  ValueGuards value_guards_;
  // Of the last recording, and what it reads and does not write, at its end.
  SharedMemory shared_;
  ReadMemory read_;
  // Of the first recording: leaves, and whether they required a gradient.
  LeafFlags flags_;
  // Whether the function looks at gradients that the program leaves alone, as zero_grad() does.
  bool gradients_matter_ = false;
  // Of the last call.
  std::vector<WeakTensor> leaves_in_turn_;

  // The phase, with the last recording before the proof, and the run after it.
  Phase phase_ = Phase::kWarm;
  std::unique_ptr<Program> recorded_;
  std::shared_ptr<ReplayRun> run_;
  Refusal refusal_;
  // Why the function was recorded anew, the last time.
  Refusal outdated_reason_;
  // Of declines(), for the call that follows.
  std::optional<Difference> difference_;
  RetryBudget retries_;
  TimedCalls timed_;
  uint64_t replays_ = 0;
  uint64_t beside_new_ = 0;
  uint64_t compared_beside_new_ = 0;
  uint64_t times_recorded_ = 0;
  // Of calls that were eager.
  EagerCost eager_cost_;
};

}  // namespace overdrive::replay
