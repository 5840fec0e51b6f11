// The recordings of one set of signatures and modes, from the first eager call to the replays. Owned by a
// CapturedFunction, called by one thread at a time. The owner finds the entry of a call.
//
//   warm -> first (recorded) -> second (recorded, compared, replayed) -> check (replayed, then made eagerly and
//   compared) -> ready;  a guard that fails: an eager call, then first;  a difference: first;  a refusal: eager
//   for good
#pragma once

#include "replay/capture_options.h"
#include "replay/declared.h"
#include "replay/file/program_to_save.h"
#include "replay/guard/doubts.h"
#include "replay/guard/input_signature.h"
#include "replay/guard/shared_memory.h"
#include "replay/optimizers/numbers_of_optimizers.h"
#include "replay/part/part.h"
#include "replay/record/environment.h"
#include "replay/record/kept_casts.h"
#include "replay/run/call_numbers.h"
#include "replay/run/self_check.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::replay {

class Entry {
 public:
  // `counts`: of a part; null for a whole step.
  Entry(const Function& function, const CaptureOptions& options, CaptureStats& stats,
        const std::vector<at::Tensor>& inputs, const std::vector<WatchedValue>& watched,
        const GivenNumbers& numbers, std::shared_ptr<PartCounts> counts);

  bool fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const;
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs);

  // Whether the program fits what the step uses from outside no more, and may fit again. Before call().
  bool declines();
  bool is_ready() const { return phase_ == Phase::kReady; }
  // Whether a recording says which leaves require a gradient in calls that belong here.
  bool has_flags() const { return phase_ == Phase::kSecond || phase_ == Phase::kCheck; }
  // Of the program's memory, and about those of its tables.
  size_t bytes() const;
  // How often it was recorded.
  uint64_t recordings() const { return recordings_; }
  const std::string& outdated_reason() const { return outdated_reason_; }

  // False where autocast keeps casts of weights, which only a call makes.
  bool would_replay(const std::vector<at::Tensor>& inputs);
  bool wants_casts() const { return !casts_.empty(); }

  // What a step file has of it; none while its calls are not replayed.
  std::optional<ProgramToSave> to_save();
  // Whether the two differ in their inputs alone.
  bool has_values_of(const Entry& other) const;

  const std::string& refusal() const { return refusal_; }
  void explain(std::ostream& out) const;
  // Not 0, and never that of another entry of the process.
  uint64_t number() const { return number_; }

 private:
  enum class Phase : uint8_t { kWarm, kFirst, kSecond, kCheck, kReady, kRefused };

  std::vector<at::Tensor> call_phase(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> call_with_casts(const std::vector<at::Tensor>& inputs);
  // Whether a recording met casts that autocast keeps and that are not known yet; then it is worth nothing.
  bool learns_casts(const Program& program);
  std::vector<at::Tensor> eager(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> record_first(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> record_second(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> check(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs);
  bool run_keeping_gradients();
  std::vector<at::Tensor> replay_part(const std::vector<at::Tensor>& inputs);
  // What may matter to the function, as far as its recordings tell, is another one now: the call is made
  // eagerly, recorded and compared.
  std::vector<at::Tensor> doubted(const std::vector<at::Tensor>& inputs, const std::string& what);
  // The same for gradients that the program leaves alone: some are there now and were not, or the other way.
  std::vector<at::Tensor> doubted_gradients(const std::vector<at::Tensor>& inputs, const char* what);
  // The same for data that the function may have read through a pointer.
  std::vector<at::Tensor> doubted_data(const std::vector<at::Tensor>& inputs, const char* what);
  // A replay, taken back, and the same call eagerly; an error when they differ.
  std::vector<at::Tensor> compared_replay(const std::vector<at::Tensor>& inputs);

  // The call eagerly on the inputs, recorded, and replayed on copies of them.
  CheckedCall checked_call(const std::vector<at::Tensor>& inputs);
  // The same after a replay of the present program, whose outcome is compared, too. None when the replay threw.
  std::optional<CheckedCall> replay_and_check(const std::vector<at::Tensor>& inputs);
  // Of a part: whether what it made in the last recorded call lives still, and the recording proves nothing
  // yet.
  bool is_held();
  // Of a part, before a call that is recorded: the placeholders are this thread's, and have new values.
  std::unique_lock<std::recursive_mutex> take_placeholders();
  // Whether the call is one of those that are compared.
  bool is_compared() const;
  // A replay was taken back: an error, or an operator that told the program something else.
  std::vector<at::Tensor> eager_after_throw(const std::vector<at::Tensor>& inputs,
                                            const std::string& other_answer);
  std::string compare(const Program& before, Program& now);
  // Of an optimizer, or of the call: another number in each replay.
  bool has_other_numbers(size_t op) const;
  Passes passes(const Program& program) const;
  void set_numbers();
  // The program runs next, and functions that run apart in it.
  void begin_run() const;
  void note_inputs(const Program& before, const Program& now);
  // Whether each input was seen as more than one tensor, or is the one that was recorded: if the function also
  // reaches the only one by another name, a recording cannot tell.
  bool knows(const std::vector<at::Tensor>& inputs) const;
  // Whether no input is a tensor that the program knows from outside: a recording of the call would take both
  // for the input.
  static bool tells_apart(const Program& program, const std::vector<at::Tensor>& inputs);
  // Whether a leaf that the program knows from outside is given to it as an input.
  bool is_known_leaf(const std::vector<at::Tensor>& inputs) const;
  void note_recording();
  void adopt(std::shared_ptr<ReplayRun> run);
  void release_run();
  void fill_buffers(const std::vector<at::Tensor>& inputs) const;
  void give_back_inputs(const std::vector<at::Tensor>& inputs);
  // Why the recording does not fit what it uses from outside, or null.
  const char* outside_difference();
  // The same, or what declines() has found.
  const char* take_difference();
  void refuse(std::string reason);
  void outdated(std::string reason);
  static uint64_t next_number();

  // Null for a whole step.
  const std::unique_ptr<Part> part_;
  const Function function_;
  const CaptureOptions& options_;
  CaptureStats& stats_;
  // The modes and the signatures of the calls that belong here.
  const Environment environment_;
  const std::vector<InputSignature> inputs_;
  // Casts that the function wants, by Note [Casts that autocast keeps], and the signatures of all inputs with
  // them.
  std::vector<KeptCast> casts_;
  std::vector<InputSignature> inputs_and_casts_;
  const ModuleModes modes_;
  const std::vector<WatchedValue> watched_;
  // Every how many replays one is compared; 0: none. Not set: the 10th, the 100th, the 1,000th and so on.
  const std::optional<uint64_t> check_every_;
  // As CaptureOptions::lanes.
  const int lanes_;
  const uint64_t number_ = next_number();

  Phase phase_ = Phase::kWarm;
  std::unique_ptr<Program> recorded_;
  // Of the last recording.
  SharedMemory shared_;
  // What the last recording reads and does not write, at its end.
  ReadMemory read_;
  // Of the first recording: leaves, and whether they required a gradient.
  LeafFlags flags_;
  // Of each input: whether two recordings that are equal had another tensor there.
  std::vector<bool> varied_;
  Doubts doubts_;
  std::shared_ptr<ReplayRun> run_;
  std::unique_ptr<NumbersOfOptimizers> numbers_;
  CallNumbers call_numbers_;
  std::string refusal_;
  // Whether the function looks at gradients that the program leaves alone, as zero_grad() does.
  bool gradients_matter_ = false;
  // Of declines(), for the call that follows.
  std::optional<const char*> difference_;
  // Why it was recorded anew, the last time.
  std::string outdated_reason_;
  uint64_t differences_ = 0;
  uint64_t recordings_ = 0;
  // Calls whose inputs tells_apart() could not tell from what the first recording knows.
  uint64_t alike_ = 0;
  // Recordings of a part that is_held() could not use.
  uint64_t held_ = 0;
  uint64_t outdated_ = 0;
  uint64_t replays_ = 0;
  uint64_t undone_in_a_row_ = 0;
  uint64_t other_answers_ = 0;
};

}  // namespace overdrive::replay
