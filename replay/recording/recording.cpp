#include "replay/recording/recording.h"

#include "replay/guard/leaf_gradients.h"
#include "replay/lanes/lane_run.h"
#include "replay/record/apart_call.h"
#include "replay/record/compare.h"
#include "replay/record/refusals.h"
#include "replay/recording/eager_time.h"

#include <atomic>

namespace overdrive::replay {

namespace {

// The way out where gradients come and go.
constexpr const char* kOfGradients =
    "; where it accumulates over several calls, end them by zero_grad(false) (Python: set_to_none=False), or "
    "capture the model alone, captured(model).";

// The first watched number, by which a caller knows its functions apart.
int64_t number_of(const std::vector<WatchedValue>& watched) {
  return watched.empty() ? 0 : watched.front().as_number();
}

std::string refusal_of_written_inputs(const Program& program) {
  if (!program.writes_inputs()) return "";
  if (program.input_aliased)
    return "The function changes an input's memory, and also reaches it in another way; give a clone() of the "
           "input.";
  return program.is_part() ? PartFunction::kChangesInput : "";
}

}  // namespace

Recording::Recording(const Function& function, const CaptureOptions& options, CaptureStats& stats,
                     const Tensors& inputs, const std::vector<WatchedValue>& watched,
                     const GivenNumbers& numbers, std::shared_ptr<PartCounts> counts)
    : options_(options),
      stats_(stats),
      signature_(inputs, options, watched),
      function_(function, options, inputs.size(), std::move(counts), number_of(watched)),
      compared_(options),
      lanes_(function_.part() ? 1 : lanes_asked_for(options.lanes)),
      numbers_(options, numbers),
      timed_(options) {
  if (std::string reason = numbers_.refusal(); !reason.empty()) refuse(std::move(reason));
}

uint64_t Recording::next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::vector<at::Tensor> Recording::call(const Tensors& inputs) {
  if (timed_.is_open() && phase_ == Phase::kReady) return timed_call(inputs);
  timed_.skip_call();
  return call_part_or_step(inputs);
}

std::vector<at::Tensor> Recording::call_part_or_step(const Tensors& inputs) {
  Part* const part = function_.part();
  if (!part) {
    const ApartTape tape;
    return call_with_casts(inputs);
  }
  const ApartTape::Part scope;
  PartFunction& function = part->function();
  (void)function.take_outputs();  // of a call that threw
  function.look_at_views();
  if (function.is_refused() && phase_ != Phase::kRefused) refuse(function.refusal());
  if (function.wants_recording() && phase_ == Phase::kReady) {
    outdated("the gradients of the outputs arrive in another form");
  } else if (function.wants_recording() && has_flags()) {
    phase_ = Phase::kFirst;
  }
  Tensors results = call_with_casts(inputs);
  std::optional<Tensors> outputs = function.take_outputs();
  return outputs ? std::move(*outputs) : results;
}

std::vector<at::Tensor> Recording::call_with_casts(const Tensors& inputs) {
  if (casts_.empty() || phase_ == Phase::kRefused) return call_phase(inputs);
  if (const std::optional<Tensors> all = casts_.add_to(inputs)) return call_phase(*all);
  outdated(
      "a cast of a weight that autocast keeps was made without a graph or in another order, or its weight is "
      "gone");
  casts_.forget();
  return eager(inputs);
}

std::vector<at::Tensor> Recording::call_phase(const Tensors& inputs) {
  switch (phase_) {
    case Phase::kWarm:
      if (eager_cost_.calls + 1 >= options_.eager_calls) phase_ = Phase::kFirst;
      return eager(inputs);
    case Phase::kFirst:
      return function_.may_be_recorded() ? record_first(inputs) : eager(inputs);
    case Phase::kSecond:
      return record_second(inputs);
    case Phase::kCheck:
      return check(inputs);
    case Phase::kReady:
      return replay(inputs);
    case Phase::kRefused:
      return eager(inputs);
  }
  return {};
}

std::vector<at::Tensor> Recording::eager(const Tensors& inputs) {
  ++stats_.eager;
  ApartTape::rewind(/*may_call=*/true);
  const EagerTime time;
  Tensors results = phase_ == Phase::kRefused ? function_.plain(inputs) : function_.eager(inputs);
  eager_cost_.add(time.seconds());
  return results;
}

std::vector<at::Tensor> Recording::record_first(const Tensors& inputs) {
  note_recording();
  const auto placeholders = function_.take_placeholders();
  auto program = std::make_unique<Program>();
  Tensors results;
  {
    const std::vector<LeafGradient> unknown;
    Recorder recorder(*program, unknown);
    recorder.note_weights(casts_.all());
    results = recorder.run(function_.recorded(), inputs);
  }
  if (learns_casts(*program)) return results;
  if (program->refusal.empty()) program->refusal = refusal_of_written_inputs(*program);
  if (!program->refusal.empty()) {
    refuse_recorded(program->refusal);
    return results;
  }
  if (!function_.part()) note_gradients_left(*program);
  flags_ = LeafFlags(*program);
  begin_proof(std::move(program));
  numbers_.begin();
  inputs_.forget();
  phase_ = Phase::kSecond;
  return results;
}

// What calls before it have met says nothing about the program.
void Recording::begin_proof(std::unique_ptr<Program> program) {
  recorded_ = std::move(program);
  if (Part* const part = function_.part(); part && recorded_->is_part())
    part->function().gradients().learn(*recorded_);
  note_memory(*recorded_);
}

std::vector<at::Tensor> Recording::record_second(const Tensors& inputs) {
  if (const char* reason = flags_.difference()) {
    outdated(reason);
    return eager(inputs);
  }
  if (!shared_.harmless(inputs)) {
    outdated_reason_ =
        "An input lies in memory that the step also reaches by another name, as a detached parameter does; "
        "give its clone().";
    return eager(inputs);
  }
  if (!tells_apart(*recorded_, inputs)) return retries_.is_alike() ? record_first(inputs) : eager(inputs);
  if (Refusal held = function_.held_by(*recorded_); !held.empty()) {
    outdated_reason_ = held;
    if (retries_.is_held()) refuse(std::move(held));
    return eager(inputs);
  }
  if (!numbers_.may_prove()) return eager(inputs);
  const auto placeholders = function_.take_placeholders();
  note_recording();
  CheckedCall call = checked_call(inputs);
  if (!call.refusal.empty()) {
    refuse_recorded(std::move(call.refusal));
  } else if (call.difference.empty()) {
    adopt(std::move(call.run));
    value_guards_ = ValueGuards(run_->program(), run_->bound().buffers());
    phase_ = Phase::kCheck;
  } else {
    inputs_.forget();
    if (call.program) {
      if (!function_.part())
        leaves_in_turn_ = leaves_that_take_turns(recorded_->gradients, call.program->gradients);
      call.results = copies_of(call.results);
      begin_proof(std::move(call.program));
    } else {
      phase_ = Phase::kFirst;
    }
    note_difference(std::move(call.difference));
  }
  return call.results;
}

// The program replays already, other data than those that it was recorded with.
std::vector<at::Tensor> Recording::check(const Tensors& inputs) {
  if (const Difference found = outside_difference()) {
    outdated_by_guard(found);
    return eager(inputs);
  }
  if (!shared_.harmless(inputs) || !tells_apart(run_->program(), inputs)) return eager(inputs);
  const auto placeholders = function_.take_placeholders();
  value_guards_.settle(inputs);
  std::optional<CheckedCall> call = replay_and_check(inputs);
  if (!call) return eager_after_throw(inputs, run_->other_answer());
  ++stats_.checked;
  if (!call->refusal.empty()) {
    refuse_recorded(std::move(call->refusal));
  } else if (call->difference.empty()) {
    begin_replays(std::move(call->run));
  } else {
    inputs_.forget();
    note_difference(std::move(call->difference));
  }
  return call->results;
}

void Recording::refuse(Refusal refusal) {
  phase_ = Phase::kRefused;
  refusal_ = std::move(refusal);
  recorded_.reset();
  run_.reset();
  function_.forget();
}

void Recording::refuse_recorded(Refusal refusal) {
  if (refusal.kind != RefusalKind::kGradientDied || retries_.waits_for_others())
    return refuse(std::move(refusal));
  run_.reset();
  outdated_reason_ = std::move(refusal);
  phase_ = Phase::kFirst;
}

// This call runs eagerly: a value that changed now may have yet another value in the next call.
void Recording::outdated(Refusal reason) {
  ++stats_.outdated;
  run_.reset();
  outdated_reason_ = std::move(reason);
  phase_ = Phase::kFirst;
  if (retries_.is_outdated(replays_)) {
    const std::string& text = outdated_reason_.text;
    const bool is_of_gradients = outdated_reason_.kind == RefusalKind::kGradientChanged;
    refuse(outdated_reason_.with_text("What the step uses from outside changes in nearly every call: " + text +
                                      (is_of_gradients       ? kOfGradients
                                       : text.ends_with('.') ? ""
                                                             : ".")));
  }
}

void Recording::outdated_by_guard(Refusal reason) {
  if (!function_.part()) leaves_in_turn_ = run_->guard().leaves_that_take_turns();
  outdated(std::move(reason));
}

void Recording::note_difference(Refusal difference) {
  outdated_reason_ = std::move(difference);
  const bool is_last = outdated_reason_.kind == RefusalKind::kGradientReplaced ? retries_.waits_for_others()
                                                                               : retries_.differs();
  if (is_last) refuse(outdated_reason_);
}

}  // namespace overdrive::replay
