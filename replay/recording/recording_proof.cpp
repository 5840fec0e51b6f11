// How a call is recorded and compared: with the recording before it, and with a replay on the same data.
#include "engine/base/c_error.h"
#include "engine/base/environment_value.h"
#include "replay/guard/leaf_gradients.h"
#include "replay/lanes/lane_run.h"
#include "replay/record/apart_call.h"
#include "replay/record/compare.h"
#include "replay/recording/declared.h"
#include "replay/recording/listed_recordings.h"
#include "replay/recording/recording.h"

namespace overdrive::replay {

namespace {

constexpr const char* kOtherCasts = "Autocast keeps casts of other weights than before.";

}  // namespace

void Recording::note_recording() {
  ++stats_.recorded;
  ++times_recorded_;
}

void Recording::note_memory(const Program& program) {
  shared_ = SharedMemory(program);
  read_ = ReadMemory(program);
}

bool Recording::learns_casts(const Program& program) {
  if (program.has_late_cast || !casts_.learn(program)) return false;
  if (Part* const part = function_.part())
    part->function().give_casts(signature_.inputs().size(), casts_.all());
  phase_ = Phase::kFirst;
  return true;
}

Refusal Recording::compare(const Program& before, Program& now) {
  now.refusal = numbers_.find_updates(now);
  Refusal found = now.refusal.empty() ? numbers_.find_given(before, now) : Refusal();
  if (now.refusal.empty()) now.refusal = numbers_.unseen_change(now);
  if (!now.refusal.empty()) return now.refusal;
  if (!now.kept_casts.empty()) return kOtherCasts;
  if (found.empty()) found = numbers_.difference(before, now);
  // The first recording does not know the gradients.
  if (found.empty() && !before.gradients.empty()) found = gradient_difference(before.gradients, now.gradients);
  if (found.empty() && phase_ == Phase::kSecond && !before.is_part()) found = still_held(before);
  if (!found.empty()) numbers_.forget(now);
  return found;
}

Passes Recording::passes(const Program& program) const {
  const auto keeps = [this](size_t op) { return numbers_.is_read_by(op); };
  const bool are_on =
      options_.passes && base::value_from_environment("OVERDRIVE_CAPTURE_PASSES").value_or(1) == 1;
  Passes passes = are_on ? passes_of(program, keeps) : Passes::none(program);
  passes.for_lanes = lanes_ != 1;
  return passes;
}

CheckedCall Recording::checked_call(const Tensors& inputs) {
  const Tensors buffers = buffers_like(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(buffers[i], inputs[i]);
  const Program& before = *recorded_;
  CheckedCall call = check_call(before, read_,
                                {.function = function_.recorded(),
                                 .inputs = inputs,
                                 .buffers = buffers,
                                 .compare = [&](Program& now) { return compare(before, now); },
                                 .passes = [&](const Program& now) { return passes(now); },
                                 .casts = casts_.all(),
                                 .prepare = [&](ReplayRun& run) { numbers_.declare(run); }});
  if (call.program && learns_casts(*call.program)) {
    call.refusal = {};
    call.is_unrecordable = false;
    call.difference = kOtherCasts;
  }
  if (!call.run || !call.refusal.empty() || !call.difference.empty()) return call;
  call.refusal = undeclared(*call.run, options_, numbers_.optimizers());
  call.is_unrecordable = !call.refusal.empty();
  inputs_.note(before, call.run->program());
  // Results that the caller keeps are no part of a later recording's memory.
  call.results = call.run->results();
  return call;
}

std::optional<CheckedCall> Recording::replay_and_check(const Tensors& inputs) {
  if (Part* const part = function_.part()) run_ = part->free_run();
  numbers_.set();
  fill_buffers(*run_, inputs, signature_.inputs(), function_.part() ? nullptr : &value_guards_);
  const ReplayedState state(*run_);
  const ReadMemory read(run_->program());
  begin_run();
  Refusal failure;
  try {
    if (!run_->run()) return std::nullopt;
  } catch (const std::exception& error) {
    failure = c10::str("A replay failed: ", base::text_of(error));
  }
  const ReplayedState replayed = state.now();
  state.restore();
  release_run();
  CheckedCall call = checked_call(inputs);
  const bool is_made = call.run && (call.refusal.empty() || call.is_unrecordable);
  if (!is_made || !call.difference.empty()) return call;
  if (failure.empty()) failure = replayed.difference_from(*call.run);
  if (failure.empty()) return call;
  call.is_unrecordable = false;
  // Another thread may have filled memory between the two.
  call.is_unsure = !read.is_complete() || ReadMemory(*recorded_) != read;
  (call.is_unsure ? call.difference : call.refusal) = std::move(failure);
  return call;
}

void Recording::adopt(std::shared_ptr<ReplayRun> run) {
  run_ = std::move(run);
  function_.adopt(run_);
  const Environment& modes = signature_.environment();
  if (lanes_ != 1 && run_->program().aparts.empty())
    run_->run_by(std::make_unique<LaneRun>(*run_, lanes_, modes.in_parallel_region ? 0 : modes.threads));
  recorded_.reset();
  note_memory(run_->program());
  numbers_.bind(*run_);
}

void Recording::begin_replays(std::shared_ptr<ReplayRun> run) {
  adopt(std::move(run));
  list_recording(*run_);
  value_guards_.renew(run_->program(), run_->bound().buffers());
  phase_ = Phase::kReady;
}

// Before an eager call that is compared: what a run holds would live longer in it than it does without a
// capture. When the function throws there, the step is recorded anew.
void Recording::release_run() {
  // A graph that lives may still have the run.
  recorded_ = std::make_unique<Program>(function_.part() ? Program(run_->program()) : run_->take_program());
  function_.forget();
  run_.reset();
  phase_ = Phase::kFirst;
}

}  // namespace overdrive::replay
