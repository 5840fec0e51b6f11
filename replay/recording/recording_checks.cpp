// Calls whose replay is in doubt: something may matter to the function that no recording shows, the replay was
// taken back, or its turn has come to be compared.
#include "replay/record/apart_call.h"
#include "replay/record/compare.h"
#include "replay/record/refusals.h"
#include "replay/recording/recording.h"

namespace overdrive::replay {

std::vector<at::Tensor> Recording::doubted(const Tensors& inputs, const std::string& what) {
  const auto placeholders = function_.take_placeholders();
  value_guards_.settle(inputs);
  release_run();
  ++stats_.checked;
  CheckedCall call = checked_call(inputs);
  const Refusal& found = call.refusal.empty() ? call.difference : call.refusal;
  if (call.refusal.empty() && call.program && answers_differ(*recorded_, *call.program)) {
    outdated(call.difference);
    return call.results;
  }
  if (!found.empty()) {
    const bool again = call.refusal.empty() && !retries_.differs();
    outdated_reason_ = found.with_text(c10::str(what, ". The difference: ", found.text));
    run_.reset();
    phase_ = Phase::kFirst;
    if (!again) refuse(outdated_reason_);
    return call.results;
  }
  begin_replays(std::move(call.run));
  return call.results;
}

std::vector<at::Tensor> Recording::doubted_gradients(const Tensors& inputs, const char* what) {
  const uint64_t differences = retries_.differences();
  Tensors results = doubted(inputs, what);
  if (phase_ == Phase::kFirst) {
    gradients_matter_ = true;
    retries_.forgive(differences);
  }
  return results;
}

std::vector<at::Tensor> Recording::doubted_data(const Tensors& inputs, const char* what) {
  return doubted(
      inputs,
      c10::str(
          what,
          " was the same in all recorded calls and is another one now, and the function reads it through a "
          "pointer, as tolist(), an accessor, pack_padded_sequence() and tensor_split() do; make what depends "
          "on it outside the function"));
}

std::vector<at::Tensor> Recording::compared_replay(const Tensors& inputs) {
  ++replays_;
  if (beside_new_ > 0) {
    --beside_new_;
    ++compared_beside_new_;
  }
  const auto placeholders = function_.take_placeholders();
  std::optional<CheckedCall> call = replay_and_check(inputs);
  if (!call) return eager_after_throw(inputs, run_->other_answer());
  ++stats_.checked;
  const Refusal& found = call->refusal.empty() ? call->difference : call->refusal;
  if (call->is_unsure) {
    outdated("memory that the step reads changed while a replay was compared");
    return call->results;
  }
  if (call->is_unrecordable) {
    refuse(found);
    return call->results;
  }
  if (!found.empty()) {
    refuse({"OVERDRIVE_CAPTURE_CHECK: a replay differs from the eager call. " + found.text, found.op,
            RefusalKind::kReplayDiffers});
    TORCH_CHECK(false, refusal_.text);
  }
  retries_.note_replay();
  begin_replays(std::move(call->run));
  return call->results;
}

std::vector<at::Tensor> Recording::eager_after_throw(const Tensors& inputs, const std::string& other_answer) {
  ++stats_.undone;
  const bool is_every_call = retries_.is_undone();
  if (other_answer.empty()) {
    const bool is_apart = take_outdated_by_apart();
    if (is_every_call) {
      refuse(c10::str("Replays are taken back in every call: ",
                      is_apart ? "code that runs apart changes what the function looks at."
                               : "an operator throws on the data."));
    }
  } else if (retries_.has_other_answer(replays_)) {
    refuse(
        {c10::str(title_of_answer(other_answer),
                  " tells the program now one thing and now another; make a function of each way, and choose "
                  "outside."),
         other_answer});
  } else if (is_every_call) {
    retries_.note_replay();
    outdated({c10::str(title_of_answer(other_answer), " tells the program something else"), other_answer});
  }
  return eager(inputs);
}

}  // namespace overdrive::replay
