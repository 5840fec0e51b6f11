// A call that the recording fits: its guards, the replay, and what a replay leaves behind.
#include "replay/record/apart_call.h"
#include "replay/recording/recording.h"

#include <ATen/record_function.h>

namespace overdrive::replay {

std::vector<at::Tensor> Recording::replay(const Tensors& inputs) {
  // Without guards, as calls are when replays have given way.
  if (timed_.wants_eager()) {
    ++stats_.weighed;
    return eager(inputs);
  }
  const Difference difference = take_difference();
  if (!inputs_.know(run_->program(), inputs)) return check(inputs);
  if (difference) {
    if (!gradients_matter_ && run_->guard().only_gradients_come_or_go() && !numbers_.difference() &&
        !value_guards_.difference(inputs))
      return doubted_gradients(inputs, difference.text);
    outdated_by_guard(difference);
    return eager(inputs);
  }
  if (!shared_.harmless(inputs) || is_known_leaf(run_->program(), inputs)) return eager(inputs);
  const bool is_part = run_->program().is_part();
  // What the function does with them shows in a call that is recorded.
  if (is_part && function_.part()->function().gradients().is_unseen(inputs)) return check(inputs);
  if (const char* what = value_guards_.difference(inputs)) return doubted_data(inputs, what);
  if (is_compared() && tells_apart(run_->program(), inputs) &&
      (!is_part || function_.part()->function().gradients().are_as_noted()))
    return compared_replay(inputs);
  numbers_.set();
  RECORD_FUNCTION("overdrive::replay", c10::ArrayRef<c10::IValue>());
  return is_part ? replay_part(inputs) : replay_step(inputs);
}

std::vector<at::Tensor> Recording::timed_call(const Tensors& inputs) {
  const bool has_graph = run_->program().is_part();
  timed_.begin_call(has_graph ? std::optional(function_.part()->function().backwards()) : std::nullopt);
  if (gives_way()) return call_part_or_step(inputs);
  const uint64_t replayed = stats_.replayed, eager = stats_.eager;
  Tensors results = call_part_or_step(inputs);
  timed_.end_call(stats_.replayed - replayed, stats_.eager - eager);
  (void)gives_way();
  return results;
}

bool Recording::gives_way() {
  if (phase_ != Phase::kReady || timed_.is_open()) return false;
  std::string reason = timed_.refusal();
  if (reason.empty()) return false;
  refuse(std::move(reason));
  return true;
}

std::vector<at::Tensor> Recording::replay_step(const Tensors& inputs) {
  fill_buffers(*run_, inputs, signature_.inputs(), function_.part() ? nullptr : &value_guards_);
  // Before anything is changed, because there may be no memory for them.
  Tensors results = run_->empty_results();
  begin_run();
  if (!run_keeping_gradients()) return eager_after_throw(inputs, run_->other_answer());
  run_->fill_results(results);
  give_back_inputs(*run_, inputs);
  run_->guard().finish_call();
  numbers_.count_step();
  note_replay();
  return results;
}

std::vector<at::Tensor> Recording::replay_part(const Tensors& inputs) {
  Part& part = *function_.part();
  std::optional<Tensors> outputs = part.replay(inputs, run_->guard());
  if (!outputs) return eager_after_throw(inputs, part.other_answer());
  note_replay();
  return std::move(*outputs);
}

// Gradients that somebody holds are not seen to change when the replay is taken back.
bool Recording::run_keeping_gradients() {
  run_->guard().begin_call();
  bool is_done = false;
  try {
    is_done = run_->run();
  } catch (...) {
    run_->guard().put_back();
    throw;
  }
  if (!is_done) run_->guard().put_back();
  return is_done;
}

void Recording::begin_run() const {
  if (run_->program().aparts.empty()) return;
  ApartTape::rewind(/*may_call=*/true);
  if (ApartTape* tape = ApartTape::active()) tape->follow(run_->program(), /*is_replay=*/true);
}

void Recording::note_replay() {
  retries_.note_replay();
  ++replays_;
  ++stats_.replayed;
}

}  // namespace overdrive::replay
