// The content of a CapturedStep: the function, its options and its recordings. Owned by the CapturedStep.
// One thread at a time is in a call, and a flag says so; calls of others run the function. Finds the recording
// of a call. Calls that no recording may take run eagerly.
#pragma once

#include "replay/recording/backoff.h"
#include "replay/recording/gradients_in_turn.h"
#include "replay/recording/kept_recordings.h"
#include "replay/recording/seen_forms.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace overdrive::replay {

class CapturedFunction {
 public:
  enum class Kind : uint8_t { kStep, kPart };
  CapturedFunction(Function function, CaptureOptions options, Kind kind = Kind::kStep);

  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs);
  bool would_replay(const std::vector<at::Tensor>& inputs);
  void watch(const void* value, size_t bytes);
  // Numbers that the function is given with each call, in the caller's memory. Before the first call.
  void give_numbers(GivenNumbers numbers) { given_ = numbers; }
  // In the caller's memory, read in every call. Its lowest two bits: 0: calls are recorded as they come; 1:
  // those of new sizes and types are eager until they come again after others; 2: those of new ones are eager;
  // 3: so is every call that is not replayed yet. The others change where calls went past this. Before the
  // first call.
  void limit(const int64_t* closed) { closed_ = closed; }
  void reset();
  // The programs that replay, with the modes and values of the last call; for a step file.
  FunctionToSave to_save(std::string name);
  // The names of tensors that the options' modules and optimizer have.
  std::vector<std::pair<std::string, at::Tensor>> names() const;
  // The number of the recording that the last call belonged to, or that of the call under way; 0: none.
  uint64_t current() const { return current_; }

  // Whether some recording uses the memory of one of these tensors, which its call was not given.
  bool has_met_one_of(const std::vector<at::Tensor>& tensors) const;

  CaptureStats stats() const;
  // Why calls are not replayed, as a user reads it; "" where they are, or may be.
  std::string refusal() const;
  // The same, and without the calls that rest.
  Refusal reason() const;
  uint64_t resting() const { return backoff_.left(); }
  // Why the last call was eager that no recording took, or else why a recording was made anew.
  Refusal last_reason() const;
  // Whether a replay that was compared differed from the eager call.
  bool has_differed() const;
  std::string explain() const;
  // The same without the counts.
  std::string explain_programs() const;
  std::string lanes_json() const;
  std::string lanes_page(const std::string& title) const;

 private:
  std::vector<at::Tensor> call_step(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> call_part(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> call_beside(const std::vector<at::Tensor>& inputs);
  bool is_on_its_thread();
  std::vector<at::Tensor> call_recording(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> eager(const std::vector<at::Tensor>& inputs, Refusal reason);
  int64_t closed() const { return closed_ ? *closed_ & 3 : 0; }
  bool may_begin(const std::vector<at::Tensor>& inputs);
  Recording* recording_for(const std::vector<at::Tensor>& inputs);
  void weigh_recordings();
  void tell_apart_by(const std::vector<WeakTensor>& leaves);

  const Function function_;
  const CaptureOptions options_;
  // Of a part; null for a whole step.
  const std::shared_ptr<PartCounts> counts_;
  // What OVERDRIVE and OVERDRIVE_CAPTURE said when the step was made.
  const bool is_on_;
  CaptureStats stats_;
  // Calls while another thread was in one.
  std::atomic<uint64_t> calls_beside_{0};
  std::vector<std::pair<const void*, size_t>> watched_;
  GivenNumbers given_;
  // Null: nothing is closed.
  const int64_t* closed_ = nullptr;
  GradientsInTurn gradients_;
  KeptRecordings recordings_;
  // Sizes and types that were closed to recordings.
  SeenForms seen_;
  Backoff backoff_;
  uint64_t current_ = 0;
  // Why the last call that no recording took was eager, and how many were in turn.
  Refusal eager_reason_;
  uint64_t eager_in_turn_ = 0;
  // Of a part: the thread whose calls with a graph are replayed, and the last one that was another.
  std::thread::id thread_{};
  std::thread::id last_thread_{};
  uint64_t calls_elsewhere_ = 0;
  // The thread of the call that is under way; none as a rule.
  std::atomic<std::thread::id> busy_{};
};

}  // namespace overdrive::replay
