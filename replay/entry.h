// The recordings of one set of looks and modes, from the first eager call to the replays. Owned by a
// CapturedFunction, called by one thread at a time. The owner finds the entry of a call.
//
//   warm -> first -> second -> check -> ready;  a guard that fails: an eager call, then first;  a difference:
//   first;  a refusal: eager for good
#pragma once

#include "replay/capture_options.h"
#include "replay/declared.h"
#include "replay/guard/environment.h"
#include "replay/guard/input_signature.h"
#include "replay/guard/shared_memory.h"
#include "replay/run/optimizer_numbers.h"
#include "replay/run/self_check.h"

#include <memory>
#include <string>
#include <vector>

namespace overdrive::replay {

class Entry {
 public:
  Entry(const Function& function, const CaptureOptions& options, CaptureStats& stats,
        const std::vector<at::Tensor>& inputs, const std::vector<WatchedValue>& watched);

  bool fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const;
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs);

  bool would_replay(const std::vector<at::Tensor>& inputs);

  const std::string& refusal() const { return refusal_; }
  void explain(std::ostream& out) const;

 private:
  enum class Phase : uint8_t { kWarm, kFirst, kSecond, kCheck, kReady, kRefused };

  std::vector<at::Tensor> eager(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> record_first(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> record_second(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> check(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs);
  // OVERDRIVE_CAPTURE_CHECK: a replay, taken back, and the same call eagerly; an error when they differ.
  std::vector<at::Tensor> compared_replay(const std::vector<at::Tensor>& inputs);

  CheckedCall checked_call(const std::vector<at::Tensor>& inputs);
  std::string compare(const Program& before, Program& now);
  void make_buffers(const std::vector<at::Tensor>& inputs);
  void give_back_inputs(const std::vector<at::Tensor>& inputs, const Program& program, bool with_versions);
  // Why the recording does not fit what it uses from outside, or null.
  const char* outside_difference();
  void refuse(std::string reason);
  void outdated(std::string reason);

  const Function& function_;
  const CaptureOptions& options_;
  CaptureStats& stats_;
  // The looks and modes of the calls that belong here.
  const Environment environment_;
  const std::vector<InputLooks> inputs_;
  const ModuleModes modes_;
  const std::vector<WatchedValue> watched_;
  // Every how many replays one is compared; 0: none.
  const uint64_t check_every_;

  Phase phase_ = Phase::kWarm;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<Program> recorded_;
  // Of the last recording.
  SharedMemory shared_;
  std::unique_ptr<ReplayRun> run_;
  std::unique_ptr<OptimizerNumbers> numbers_;
  std::string refusal_;
  // Why it was recorded anew, the last time.
  std::string outdated_reason_;
  uint64_t differences_ = 0;
  uint64_t outdated_ = 0;
  uint64_t replays_ = 0;
  uint64_t undone_in_a_row_ = 0;
};

}  // namespace overdrive::replay
