#include "replay/entry.h"

#include "replay/record/compare.h"
#include "replay/run/replay_run.h"

#include <ATen/record_function.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace overdrive::replay {

namespace {

// Recordings that differ from the one before, and recordings that soon fit no more, after which an entry gives
// up.
constexpr uint64_t kMostDifferences = 4;
constexpr uint64_t kMostOutdated = 8;
constexpr uint64_t kMostUndone = 16;

// install() checks the variable as well, but a program that captures a step need not install the engine.
uint64_t check_every(const CaptureOptions& options) {
  if (options.check_every > 0) return options.check_every;
  const char* text = std::getenv("OVERDRIVE_CAPTURE_CHECK");
  if (!text || !*text) return 0;
  int every = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, every);
  TORCH_CHECK(error == std::errc{} && stop == end && every >= 0, "OVERDRIVE_CAPTURE_CHECK is \"", text,
              "\", but must be a whole number from 0 to ", std::numeric_limits<int>::max(), ".");
  return static_cast<uint64_t>(every);
}

// Something that has to happen however a scope ends.
template <typename Action>
class AtEnd {
 public:
  explicit AtEnd(Action action) : action_(std::move(action)) {}
  ~AtEnd() { action_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Action action_;
};

}  // namespace

Entry::Entry(const Function& function, const CaptureOptions& options, CaptureStats& stats,
             const std::vector<at::Tensor>& inputs, const std::vector<WatchedValue>& watched)
    : function_(function),
      options_(options),
      stats_(stats),
      environment_(Environment::now()),
      inputs_(looks_of(inputs)),
      modes_(options.modules),
      watched_(watched),
      check_every_(check_every(options)) {
  if (!options.optimizer) return;
  numbers_ = std::make_unique<OptimizerNumbers>(*options.optimizer);
  if (!numbers_->refusal().empty()) refuse(numbers_->refusal());
}

bool Entry::fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const {
  if (environment != environment_ || !replay::fits(inputs_, inputs) || !modes_.hold()) return false;
  return std::all_of(watched_.begin(), watched_.end(), [](const WatchedValue& value) { return value.holds(); });
}

std::vector<at::Tensor> Entry::call(const std::vector<at::Tensor>& inputs) {
  switch (phase_) {
    case Phase::kWarm:
      phase_ = Phase::kFirst;
      return eager(inputs);
    case Phase::kFirst:
      return record_first(inputs);
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

std::vector<at::Tensor> Entry::eager(const std::vector<at::Tensor>& inputs) {
  ++stats_.eager;
  std::vector<at::Tensor> results = function_(inputs);
  for (at::Tensor& result : results) {
    if (result.defined()) result = result.detach();
  }
  return results;
}

void Entry::refuse(std::string reason) {
  phase_ = Phase::kRefused;
  refusal_ = std::move(reason);
  recorded_.reset();
  run_.reset();
  buffers_.clear();
}

// This call runs eagerly: a value that changed now may have yet another value in the next call.
void Entry::outdated(std::string reason) {
  ++stats_.outdated;
  run_.reset();
  outdated_reason_ = std::move(reason);
  phase_ = Phase::kFirst;
  if (++outdated_ >= kMostOutdated && replays_ < 2 * outdated_) {
    refuse("What the step uses from outside changes in nearly every call: " + outdated_reason_ + ".");
  }
}

// With the caller's own tensors: a step that reaches an input's memory in another way as well does here what it
// does without a capture, and the recording shows it.
std::vector<at::Tensor> Entry::record_first(const std::vector<at::Tensor>& inputs) {
  ++stats_.recorded;
  auto program = std::make_unique<Program>();
  std::vector<at::Tensor> results;
  {
    Recorder recorder(*program);
    results = recorder.run(function_, inputs);
  }
  if (!program->refusal.empty()) {
    refuse(program->refusal);
    return results;
  }
  if (program->writes_inputs() && program->input_aliased) {
    refuse(
        "The function changes an input's memory, and also reaches it in another way; give a clone() of the "
        "input.");
    return results;
  }
  recorded_ = std::move(program);
  shared_ = SharedMemory(*recorded_);
  phase_ = Phase::kSecond;
  return results;
}

void Entry::make_buffers(const std::vector<at::Tensor>& inputs) {
  buffers_ = buffers_like(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(buffers_[i], inputs[i]);
}

void Entry::give_back_inputs(const std::vector<at::Tensor>& inputs, const Program& program,
                             bool with_versions) {
  for (const Memory& memory : program.memories) {
    if (memory.origin != Origin::kInput || !memory.written) continue;
    const at::Tensor& input = inputs[memory.input];
    copy_elements(input, buffers_[memory.input]);
    if (!with_versions || input.is_inference()) continue;
    for (int64_t i = 0; i < program.input_bumps[memory.input]; ++i) input.unsafeGetTensorImpl()->bump_version();
  }
}

std::string Entry::compare(const Program& before, Program& now) {
  if (numbers_) now.refusal = numbers_->find(now, options_.constant_numbers);
  if (!now.refusal.empty()) return now.refusal;
  return first_difference(
      before, now, [&](size_t op, size_t argument) { return numbers_ && numbers_->may_differ(op, argument); });
}

std::vector<at::Tensor> Entry::record_second(const std::vector<at::Tensor>& inputs) {
  if (!shared_.harmless(inputs)) return eager(inputs);
  ++stats_.recorded;
  make_buffers(inputs);
  auto program = std::make_unique<Program>();
  std::vector<LeafGradient> gradients = gradients_now(*recorded_);
  std::vector<at::Tensor> results;
  {
    const AtEnd inputs_back([&] { give_back_inputs(inputs, *program, !program->input_bumps.empty()); });
    Recorder recorder(*program);
    results = recorder.run(function_, buffers_);
  }
  if (program->refusal.empty()) program->refusal = note_gradients_after(gradients, *program);
  if (!program->refusal.empty()) {
    refuse(program->refusal);
    return results;
  }
  program->gradients = std::move(gradients);
  std::string difference = compare(*recorded_, *program);
  for (const Memory& memory : recorded_->memories) {
    if (!difference.empty() || memory.origin != Origin::kMade || memory.weak.expired()) continue;
    const bool returned = std::any_of(recorded_->results.begin(), recorded_->results.end(), [&](int value) {
      return value >= 0 && &recorded_->memory_of(value) == &memory;
    });
    if (!returned) {
      difference = c10::str("A tensor that ", recorded_->operators[memory.first].name,
                            " made in one call is still held "
                            "after the next; return tensors that are to be kept.");
    }
  }
  if (!program->refusal.empty()) return refuse(program->refusal), results;
  recorded_ = std::move(program);
  shared_ = SharedMemory(*recorded_);
  // Results that the caller keeps are no part of a later recording's buffers.
  for (at::Tensor& result : results) {
    if (result.defined()) result = result.clone();
  }
  if (difference.empty()) {
    phase_ = Phase::kCheck;
  } else if (++differences_ >= kMostDifferences) {
    refuse(std::move(difference));
  } else {
    outdated_reason_ = std::move(difference);
  }
  return results;
}

CheckedCall Entry::checked_call(const std::vector<at::Tensor>& inputs) {
  ++stats_.checked;
  make_buffers(inputs);
  CheckedCall call;
  const Program& before = run_ ? run_->program() : *recorded_;
  bool finished = false;
  const AtEnd inputs_back([&] {
    give_back_inputs(inputs, before, finished);
    // The function threw: the run that goes on reads its own buffers.
    if (!finished && run_) buffers_ = run_->bound().buffers();
  });
  call = check_call(before, {.function = function_,
                             .buffers = buffers_,
                             .compare =
                                 [&](Program& now) {
                                   std::string text = compare(before, now);
                                   return text.empty() ? gradient_difference(before.gradients, now.gradients)
                                                       : text;
                                 },
                             .prepare =
                                 [&](ReplayRun& run) {
                                   if (numbers_) numbers_->declare(run);
                                 }});
  finished = true;
  if (call.run && call.refusal.empty()) {
    call.refusal = undeclared(*call.run, options_, numbers_.get());
    call.results = call.run->results();
  }
  return call;
}

std::vector<at::Tensor> Entry::check(const std::vector<at::Tensor>& inputs) {
  if (!shared_.harmless(inputs)) return eager(inputs);
  CheckedCall call = checked_call(inputs);
  if (!call.refusal.empty()) {
    refuse(std::move(call.refusal));
  } else if (!call.difference.empty()) {
    outdated_reason_ = std::move(call.difference);
    phase_ = Phase::kFirst;
    if (++differences_ >= kMostDifferences) refuse(outdated_reason_);
  } else {
    run_ = std::move(call.run);
    shared_ = SharedMemory(run_->program());
    if (numbers_) numbers_->bind(*run_);
    recorded_.reset();
    phase_ = Phase::kReady;
  }
  return call.results;
}

const char* Entry::outside_difference() {
  if (const char* reason = run_->guard().difference()) return reason;
  return numbers_ ? numbers_->difference() : nullptr;
}

bool Entry::would_replay(const std::vector<at::Tensor>& inputs) {
  return phase_ == Phase::kReady && !outside_difference() && shared_.harmless(inputs);
}

std::vector<at::Tensor> Entry::replay(const std::vector<at::Tensor>& inputs) {
  if (const char* reason = outside_difference()) {
    outdated(reason);
    return eager(inputs);
  }
  if (!shared_.harmless(inputs)) return eager(inputs);
  if (numbers_) numbers_->set_for_next_step();
  if (check_every_ > 0 && (replays_ + 1) % check_every_ == 0) return compared_replay(inputs);
  RECORD_FUNCTION("overdrive::replay", c10::ArrayRef<c10::IValue>());
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(buffers_[i], inputs[i]);
  if (!run_->run()) {
    ++stats_.undone;
    if (++undone_in_a_row_ >= kMostUndone)
      refuse("Replays are taken back in every call: an operator throws on the data.");
    return eager(inputs);
  }
  undone_in_a_row_ = 0;
  give_back_inputs(inputs, run_->program(), true);
  run_->guard().finish_call();
  if (numbers_) numbers_->count_step();
  ++replays_;
  ++stats_.replayed;
  return run_->results();
}

std::vector<at::Tensor> Entry::compared_replay(const std::vector<at::Tensor>& inputs) {
  ++replays_;
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(buffers_[i], inputs[i]);
  const ReplayedState state(*run_);
  if (!run_->run()) return eager(inputs);
  const ReplayedState replayed = state.now();
  state.restore();
  CheckedCall call = checked_call(inputs);
  std::string text = call.refusal.empty() ? call.difference : call.refusal;
  if (text.empty()) text = replayed.difference_from(*call.run);
  if (!text.empty()) {
    refuse("OVERDRIVE_CAPTURE_CHECK: a replay differs from the eager call. " + text);
    TORCH_CHECK(false, refusal_);
  }
  run_ = std::move(call.run);
  if (numbers_) numbers_->bind(*run_);
  return call.results;
}

void Entry::explain(std::ostream& out) const {
  for (const InputLooks& input : inputs_)
    out << "input " << at::toString(input.type) << at::IntArrayRef(input.sizes) << "\n";
  static constexpr std::array<const char*, 6> names{"not recorded yet", "to be recorded", "recorded once",
                                                    "recorded twice",   "replayed",       "refused"};
  out << names[static_cast<size_t>(phase_)] << ", " << replays_ << " replays, recorded anew " << outdated_
      << " times\n";
  if (!refusal_.empty()) out << "refused: " << refusal_ << "\n";
  if (!outdated_reason_.empty()) out << "recorded anew the last time because: " << outdated_reason_ << "\n";
  if (run_) explain_run(*run_, out);
}

}  // namespace overdrive::replay
