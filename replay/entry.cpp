#include "replay/entry.h"

#include "replay/lanes/lane_run.h"
#include "replay/record/apart_call.h"
#include "replay/record/compare.h"
#include "replay/record/refusals.h"
#include "replay/run/replay_run.h"

#include <ATen/record_function.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <atomic>
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
// Replays that an operator's other answer took back, when there are not twice as many others.
constexpr uint64_t kMostAnswers = 64;
// The second recording of a cell in a loop waits for the end of the loop, after which the graph of the first
// one goes.
constexpr uint64_t kMostHeld = 1000;
// About what an entry takes, and each operator and value of a program, beside the arena.
constexpr size_t kEntryBytes = size_t{2} << 10, kTableBytes = 512;

constexpr const char* kOtherCasts = "Autocast keeps casts of other weights than before.";

// install() checks the variable as well, but a program that captures a step need not install the engine.
std::optional<uint64_t> check_every(const CaptureOptions& options) {
  if (options.check_every > 0) return options.check_every;
  const char* text = std::getenv("OVERDRIVE_CAPTURE_CHECK");
  if (!text || !*text) return std::nullopt;
  int every = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, every);
  TORCH_CHECK(error == std::errc{} && stop == end && every >= 0, "OVERDRIVE_CAPTURE_CHECK is \"", text,
              "\", but must be a whole number from 0 to ", std::numeric_limits<int>::max(), ".");
  return static_cast<uint64_t>(every);
}

// Of a recording before the present one.
std::string still_held(const Program& before) {
  for (const Memory& memory : before.memories) {
    // Who keeps a gradient finds it unchanged (guard/kept_gradients.h).
    if (memory.origin != Origin::kMade || memory.weak.expired() || memory.is_left_as_gradient) continue;
    const bool returned = std::any_of(before.results.begin(), before.results.end(), [&](int value) {
      return value >= 0 && &before.memory_of(value) == &memory;
    });
    if (returned) continue;
    return c10::str("A tensor that ", before.operators[memory.first].name,
                    " made in one call is still held after the next; return tensors that are to be kept.");
  }
  return "";
}

// The first watched number, by which a caller knows its functions apart.
int64_t number_of(const std::vector<WatchedValue>& watched) {
  return watched.empty() ? 0 : watched.front().as_number();
}

// The function, which tells a recording what it may look at: zero_grad() takes gradients away without an
// operator.
Function noting_leaves(const Function& function, const CaptureOptions& options) {
  if (options.modules.empty() && optimizers_of(options).empty()) return function;
  return [&function, &options](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> results = function(inputs);
    Recorder* const recorder = Recorder::active();
    if (!recorder) return results;
    for (const auto& module : options.modules) recorder->note_owners(module->parameters());
    for (const auto* optimizer : optimizers_of(options)) {
      for (const auto& group : optimizer->param_groups()) recorder->note_owners(group.params());
    }
    return results;
  };
}

// A function that casts are given to beside its inputs.
Function taking(size_t inputs, Function function) {
  if (!is_in_autocast_context()) return function;
  return [inputs, function = std::move(function)](const std::vector<at::Tensor>& given) {
    return given.size() <= inputs ? function(given) : function({given.begin(), given.begin() + inputs});
  };
}

bool is_power_of_ten(uint64_t number) {
  while (number >= 10 && number % 10 == 0) number /= 10;
  return number == 1;
}

}  // namespace

Entry::Entry(const Function& function, const CaptureOptions& options, CaptureStats& stats,
             const std::vector<at::Tensor>& inputs, const std::vector<WatchedValue>& watched,
             const GivenNumbers& numbers, std::shared_ptr<PartCounts> counts)
    : part_(counts
                ? std::make_unique<Part>(taking(inputs.size(), function), std::move(counts), number_of(watched))
                : nullptr),
      function_(part_ ? [this](const std::vector<at::Tensor>& given) { return part_->function().record(given); }
                      : taking(inputs.size(), noting_leaves(function, options))),
      options_(options),
      stats_(stats),
      environment_(Environment::now()),
      inputs_(signatures_of(inputs)),
      modes_(options.modules),
      watched_(watched),
      check_every_(check_every(options)),
      lanes_(part_ ? 1 : lanes_asked_for(options.lanes)),
      call_numbers_(numbers) {
  const std::vector<torch::optim::Optimizer*> optimizers = optimizers_of(options);
  if (optimizers.empty()) return;
  numbers_ = std::make_unique<NumbersOfOptimizers>(optimizers);
  if (std::string reason = numbers_->refusal(); !reason.empty()) refuse(std::move(reason));
}

uint64_t Entry::next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool Entry::fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const {
  if (environment != environment_ || !replay::fits(inputs_, inputs) || !modes_.hold()) return false;
  return std::all_of(watched_.begin(), watched_.end(), [](const WatchedValue& value) { return value.holds(); });
}

std::vector<at::Tensor> Entry::call(const std::vector<at::Tensor>& inputs) {
  if (!part_) {
    const ApartTape tape;
    return call_with_casts(inputs);
  }
  PartFunction& function = part_->function();
  (void)function.take_outputs();  // of a call that threw
  function.look_at_views();
  if (function.is_refused() && phase_ != Phase::kRefused) refuse(function.refusal());
  if (function.wants_recording() && phase_ == Phase::kReady) {
    outdated("the gradients of the outputs arrive in another form");
  } else if (function.wants_recording() && (phase_ == Phase::kSecond || phase_ == Phase::kCheck)) {
    phase_ = Phase::kFirst;
  }
  std::vector<at::Tensor> results = call_with_casts(inputs);
  std::optional<std::vector<at::Tensor>> outputs = function.take_outputs();
  return outputs ? std::move(*outputs) : results;
}

std::vector<at::Tensor> Entry::call_with_casts(const std::vector<at::Tensor>& inputs) {
  if (casts_.empty() || phase_ == Phase::kRefused) return call_phase(inputs);
  std::vector<at::Tensor> all = inputs;
  for (at::Tensor& cast : made_casts(casts_)) all.push_back(std::move(cast));
  if (inputs_and_casts_.empty() &&
      std::all_of(all.begin(), all.end(), [](const auto& each) { return each.defined(); }))
    inputs_and_casts_ = signatures_of(all);
  if (replay::fits(inputs_and_casts_, all)) return call_phase(all);
  outdated("a cast of a weight that autocast keeps was made without a graph, or its weight is gone");
  casts_.clear();
  inputs_and_casts_.clear();
  return eager(inputs);
}

bool Entry::learns_casts(const Program& program) {
  if (program.kept_casts.empty()) return false;
  for (const KeptCast& cast : program.kept_casts) casts_.push_back(cast);
  inputs_and_casts_.clear();
  if (part_) part_->function().give_casts(inputs_.size(), casts_);
  phase_ = Phase::kFirst;
  return true;
}

std::vector<at::Tensor> Entry::call_phase(const std::vector<at::Tensor>& inputs) {
  switch (phase_) {
    case Phase::kWarm:
      phase_ = Phase::kFirst;
      return eager(inputs);
    case Phase::kFirst:
      return part_ && !part_->function().knows_gradients() ? eager(inputs) : record_first(inputs);
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
  ApartTape::rewind(/*may_call=*/true);
  if (part_) return part_->function().eager(inputs);
  std::vector<at::Tensor> results = function_(inputs);
  detach_all(results);
  return results;
}

void Entry::refuse(std::string reason) {
  phase_ = Phase::kRefused;
  refusal_ = std::move(reason);
  recorded_.reset();
  run_.reset();
  if (part_) part_->forget();
}

// This call runs eagerly: a value that changed now may have yet another value in the next call.
void Entry::outdated(std::string reason) {
  ++stats_.outdated;
  run_.reset();
  outdated_reason_ = std::move(reason);
  phase_ = Phase::kFirst;
  if (++outdated_ >= kMostOutdated && replays_ < 2 * outdated_) {
    refuse("What the step uses from outside changes in nearly every call: " + outdated_reason_ +
           (outdated_reason_.ends_with('.') ? "" : "."));
  }
}

std::vector<at::Tensor> Entry::record_first(const std::vector<at::Tensor>& inputs) {
  note_recording();
  const auto placeholders = take_placeholders();
  auto program = std::make_unique<Program>();
  std::vector<at::Tensor> results;
  {
    const std::vector<LeafGradient> unknown;
    Recorder recorder(*program, unknown);
    recorder.note_weights(casts_);
    results = recorder.run(function_, inputs);
  }
  if (learns_casts(*program)) return results;
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
  if (program->writes_inputs() && program->is_part()) {
    refuse("The function changes an input in place, which its graph would not know; change a clone() of it.");
    return results;
  }
  if (!part_) note_gradients_left(*program);
  flags_ = LeafFlags(*program);
  if (program->is_part()) part_->function().gradients().learn(*program);
  recorded_ = std::move(program);
  call_numbers_.begin();
  shared_ = SharedMemory(*recorded_);
  read_ = ReadMemory(*recorded_);
  varied_.clear();
  phase_ = Phase::kSecond;
  return results;
}

void Entry::fill_buffers(const std::vector<at::Tensor>& inputs) const {
  const std::vector<at::Tensor>& buffers = run_->bound().buffers();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t same_as = i < inputs_.size() ? inputs_[i].same_as : i;
    if (same_as == i && (part_ || !doubts_.holds(i))) copy_elements(buffers[i], inputs[i]);
  }
}

void Entry::give_back_inputs(const std::vector<at::Tensor>& inputs) {
  const Program& program = run_->program();
  for (const Memory& memory : program.memories) {
    if (memory.origin != Origin::kInput || !memory.written) continue;
    const at::Tensor& input = inputs[memory.input];
    copy_elements(input, run_->bound().buffers()[memory.input]);
    if (input.is_inference()) continue;
    for (int64_t i = 0; i < program.input_bumps[memory.input]; ++i) input.unsafeGetTensorImpl()->bump_version();
  }
}

std::string Entry::compare(const Program& before, Program& now) {
  if (numbers_) now.refusal = numbers_->find(now, options_.constant_numbers);
  if (!now.refusal.empty()) return now.refusal;
  if (!now.kept_casts.empty()) return kOtherCasts;
  std::string text = call_numbers_.find(before, now);
  if (text.empty()) {
    text = first_difference(before, now, [&](size_t op, size_t argument) {
      return (numbers_ && numbers_->may_differ(op, argument)) || call_numbers_.is_number(op, argument);
    });
  }
  // The first recording does not know the gradients.
  if (text.empty() && !before.gradients.empty()) text = gradient_difference(before.gradients, now.gradients);
  if (text.empty() && phase_ == Phase::kSecond && !before.is_part()) text = still_held(before);
  if (!text.empty()) call_numbers_.forget(now);
  return text;
}

bool Entry::has_other_numbers(size_t op) const {
  return (numbers_ && numbers_->is_update(op)) || call_numbers_.is_read_by(op);
}

Passes Entry::passes(const Program& program) const {
  const auto keeps = [this](size_t op) { return has_other_numbers(op); };
  Passes passes = options_.passes ? passes_of(program, keeps) : Passes::none(program);
  passes.for_lanes = lanes_ != 1;
  return passes;
}

void Entry::set_numbers() {
  if (numbers_) numbers_->set_for_next_step();
  call_numbers_.set_for_this_call();
}

void Entry::begin_run() const {
  if (run_->program().aparts.empty()) return;
  ApartTape::rewind(/*may_call=*/true);
  if (ApartTape* tape = ApartTape::active()) tape->follow(run_->program(), /*is_replay=*/true);
}

void Entry::note_inputs(const Program& before, const Program& now) {
  varied_.resize(now.inputs.size());
  for (size_t i = 0; i < now.inputs.size(); ++i) {
    if (before.inputs[i] != now.inputs[i]) varied_[i] = true;
  }
}

bool Entry::knows(const std::vector<at::Tensor>& inputs) const {
  const auto& recorded = run_->program().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!varied_[i] && recorded[i]._unsafe_get_target() != inputs[i].unsafeGetTensorImpl()) return false;
  }
  return true;
}

std::unique_lock<std::recursive_mutex> Entry::take_placeholders() {
  if (!part_) return {};
  auto lock = part_->lock();
  part_->function().refill();
  return lock;
}

CheckedCall Entry::checked_call(const std::vector<at::Tensor>& inputs) {
  const std::vector<at::Tensor> buffers = buffers_like(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(buffers[i], inputs[i]);
  const Program& before = *recorded_;
  CheckedCall call = check_call(before, read_,
                                {.function = function_,
                                 .inputs = inputs,
                                 .buffers = buffers,
                                 .compare = [&](Program& now) { return compare(before, now); },
                                 .passes = [&](const Program& now) { return passes(now); },
                                 .casts = casts_,
                                 .prepare =
                                     [&](ReplayRun& run) {
                                       if (numbers_) numbers_->declare(run);
                                       call_numbers_.declare(run);
                                     }});
  if (call.program && learns_casts(*call.program)) {
    call.refusal.clear();
    call.is_unrecordable = false;
    call.difference = kOtherCasts;
  }
  if (!call.run || !call.refusal.empty() || !call.difference.empty()) return call;
  call.refusal = undeclared(*call.run, options_, numbers_.get());
  call.is_unrecordable = !call.refusal.empty();
  note_inputs(before, call.run->program());
  // Results that the caller keeps are no part of a later recording's memory.
  call.results = call.run->results();
  return call;
}

void Entry::adopt(std::shared_ptr<ReplayRun> run) {
  run_ = std::move(run);
  if (part_) part_->adopt(run_);
  if (lanes_ != 1 && run_->program().aparts.empty())
    run_->run_by(
        std::make_unique<LaneRun>(*run_, lanes_, environment_.in_parallel_region ? 0 : environment_.threads));
  recorded_.reset();
  shared_ = SharedMemory(run_->program());
  read_ = ReadMemory(run_->program());
  if (numbers_) numbers_->bind(*run_);
  call_numbers_.bind(*run_);
}

void Entry::note_recording() {
  ++stats_.recorded;
  ++recordings_;
}

std::vector<at::Tensor> Entry::record_second(const std::vector<at::Tensor>& inputs) {
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
  if (!tells_apart(*recorded_, inputs)) return ++alike_ % 4 == 0 ? record_first(inputs) : eager(inputs);
  if (is_held() || !call_numbers_.may_prove()) return eager(inputs);
  const auto placeholders = take_placeholders();
  note_recording();
  CheckedCall call = checked_call(inputs);
  if (!call.refusal.empty()) {
    refuse(std::move(call.refusal));
  } else if (call.difference.empty()) {
    adopt(std::move(call.run));
    doubts_ = Doubts(run_->program(), run_->bound().buffers());
    phase_ = Phase::kCheck;
  } else {
    varied_.clear();
    outdated_reason_ = std::move(call.difference);
    if (call.program) {
      call.results = copies_of(call.results);
      recorded_ = std::move(call.program);
      shared_ = SharedMemory(*recorded_);
      read_ = ReadMemory(*recorded_);
    } else {
      phase_ = Phase::kFirst;
    }
    if (++differences_ >= kMostDifferences) refuse(outdated_reason_);
  }
  return call.results;
}

bool Entry::is_held() {
  if (!recorded_->is_part()) return false;
  std::string text = still_held(*recorded_);
  if (text.empty() && part_->function().is_leaf_held())
    text = "A leaf that the function made in one call is still held after the next, and has a gradient.";
  if (text.empty()) return false;
  outdated_reason_ = text;
  if (++held_ > kMostHeld) refuse(std::move(text));
  return true;
}

// Before an eager call that is compared: what a run holds would live longer in it than it does without a
// capture. When the function throws there, the step is recorded anew.
void Entry::release_run() {
  // A graph that lives may still have the run.
  recorded_ = std::make_unique<Program>(part_ ? Program(run_->program()) : run_->take_program());
  if (part_) part_->forget();
  run_.reset();
  phase_ = Phase::kFirst;
}

std::optional<CheckedCall> Entry::replay_and_check(const std::vector<at::Tensor>& inputs) {
  if (part_) run_ = part_->free_run();
  set_numbers();
  fill_buffers(inputs);
  const ReplayedState state(*run_);
  const ReadMemory read(run_->program());
  begin_run();
  std::string failure;
  try {
    if (!run_->run()) return std::nullopt;
  } catch (const std::exception& error) {
    failure = c10::str("A replay failed: ", error.what());
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

bool Entry::tells_apart(const Program& program, const std::vector<at::Tensor>& inputs) {
  return std::none_of(program.outside.begin(), program.outside.end(), [&](const OutsideTensor& outside) {
    return outside.lives && std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
             return input.unsafeGetTensorImpl() == outside.raw;
           });
  });
}

// The function may ask which of the two it has.
bool Entry::is_known_leaf(const std::vector<at::Tensor>& inputs) const {
  const bool any_leaf = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
    return input.requires_grad() && input.is_leaf();
  });
  return any_leaf && !tells_apart(run_->program(), inputs);
}

// The program replays already, other data than those that it was recorded with.
std::vector<at::Tensor> Entry::check(const std::vector<at::Tensor>& inputs) {
  if (const char* reason = outside_difference()) {
    outdated(reason);
    return eager(inputs);
  }
  if (!shared_.harmless(inputs) || !tells_apart(run_->program(), inputs)) return eager(inputs);
  const auto placeholders = take_placeholders();
  doubts_.settle(inputs);
  std::optional<CheckedCall> call = replay_and_check(inputs);
  if (!call) return eager_after_throw(inputs, run_->other_answer());
  ++stats_.checked;
  if (!call->refusal.empty()) {
    refuse(std::move(call->refusal));
  } else if (call->difference.empty()) {
    adopt(std::move(call->run));
    doubts_.renew(run_->program(), run_->bound().buffers());
    phase_ = Phase::kReady;
  } else {
    varied_.clear();
    outdated_reason_ = std::move(call->difference);
    if (++differences_ >= kMostDifferences) refuse(outdated_reason_);
  }
  return call->results;
}

const char* Entry::outside_difference() {
  for (const auto& apart : run_->program().aparts) {
    if (!apart->is_there)
      return "an overdrive::Apart that the step calls is gone; make it outside of the function";
  }
  if (const char* reason = run_->guard().difference()) return reason;
  if (run_->program().is_part()) {
    if (const char* reason = part_->function().gradients().difference()) return reason;
  }
  return numbers_ ? numbers_->difference() : nullptr;
}

const char* Entry::take_difference() {
  const std::optional<const char*> known = std::exchange(difference_, std::nullopt);
  return known ? *known : outside_difference();
}

bool Entry::declines() {
  if (has_flags()) return flags_.difference() != nullptr;
  if (phase_ != Phase::kReady) return false;
  difference_ = outside_difference();
  const OutsideGuard& guard = run_->guard();
  return *difference_ && (gradients_matter_ || !guard.only_gradients_come_or_go()) && guard.may_fit_again();
}

size_t Entry::bytes() const {
  const size_t runs = part_ ? std::max<size_t>(part_->runs(), 1) : 1;
  if (!run_) return kEntryBytes;
  size_t buffers = 0;
  for (const at::Tensor& buffer : run_->bound().buffers()) buffers += buffer.nbytes();
  const Program& program = run_->program();
  return kEntryBytes + runs * (run_->bound().arena_bytes() + buffers +
                               kTableBytes * (program.operators.size() + program.values.size()));
}

std::optional<ProgramToSave> Entry::to_save() {
  if (phase_ != Phase::kReady || !casts_.empty() || outside_difference()) return std::nullopt;
  TORCH_CHECK(run_->program().aparts.empty(),
              "The step cannot be saved: a function runs apart in it (overdrive::apart), which is code of the "
              "program.");
  return ProgramToSave{*run_, numbers_.get(), doubts_, inputs_};
}

bool Entry::has_values_of(const Entry& other) const {
  return environment_ == other.environment_ && modes_.same_as(other.modes_) &&
         std::equal(watched_.begin(), watched_.end(), other.watched_.begin(), other.watched_.end(),
                    [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
}

bool Entry::would_replay(const std::vector<at::Tensor>& inputs) {
  if (!casts_.empty()) return false;  // nobody knows without making them
  return phase_ == Phase::kReady && !outside_difference() && shared_.harmless(inputs) && knows(inputs) &&
         !doubts_.difference(inputs) && !is_compared();
}

bool Entry::is_compared() const {
  const uint64_t number = replays_ + 1;
  if (!check_every_) return number >= 10 && is_power_of_ten(number);
  return *check_every_ > 0 && number % *check_every_ == 0;
}

std::vector<at::Tensor> Entry::replay(const std::vector<at::Tensor>& inputs) {
  const char* const difference = take_difference();
  if (!knows(inputs)) return check(inputs);
  if (const char* reason = difference) {
    if (!gradients_matter_ && run_->guard().only_gradients_come_or_go() &&
        (!numbers_ || !numbers_->difference()) && !doubts_.difference(inputs))
      return doubted_gradients(inputs, reason);
    outdated(reason);
    return eager(inputs);
  }
  if (!shared_.harmless(inputs) || is_known_leaf(inputs)) return eager(inputs);
  // What the function does with them shows in a call that is recorded.
  if (run_->program().is_part() && part_->function().gradients().is_unseen(inputs)) return check(inputs);
  if (const char* what = doubts_.difference(inputs)) return doubted_data(inputs, what);
  if (is_compared() && tells_apart(run_->program(), inputs)) return compared_replay(inputs);
  set_numbers();
  RECORD_FUNCTION("overdrive::replay", c10::ArrayRef<c10::IValue>());
  if (part_ && run_->program().is_part()) return replay_part(inputs);
  fill_buffers(inputs);
  // Before anything is changed, because there may be no memory for them.
  std::vector<at::Tensor> results = run_->empty_results();
  begin_run();
  if (!run_keeping_gradients()) return eager_after_throw(inputs, run_->other_answer());
  run_->fill_results(results);
  undone_in_a_row_ = 0;
  give_back_inputs(inputs);
  run_->guard().finish_call();
  if (numbers_) numbers_->count_step();
  ++replays_;
  ++stats_.replayed;
  return results;
}

// Gradients that somebody holds are not seen to change when the replay is taken back.
bool Entry::run_keeping_gradients() {
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

std::vector<at::Tensor> Entry::replay_part(const std::vector<at::Tensor>& inputs) {
  std::optional<std::vector<at::Tensor>> outputs = part_->replay(inputs, run_->guard());
  if (!outputs) return eager_after_throw(inputs, part_->other_answer());
  undone_in_a_row_ = 0;
  ++replays_;
  ++stats_.replayed;
  return std::move(*outputs);
}

std::vector<at::Tensor> Entry::eager_after_throw(const std::vector<at::Tensor>& inputs,
                                                 const std::string& other_answer) {
  ++stats_.undone;
  const bool is_every_call = ++undone_in_a_row_ >= kMostUndone;
  if (other_answer.empty()) {
    if (is_every_call) refuse("Replays are taken back in every call: an operator throws on the data.");
  } else if (++other_answers_ >= kMostAnswers && replays_ < 2 * other_answers_) {
    refuse(c10::str(title_of_answer(other_answer),
                    " tells the program now one thing and now another; make a function of each way, and choose "
                    "outside."));
  } else if (is_every_call) {
    undone_in_a_row_ = 0;
    outdated(c10::str(title_of_answer(other_answer), " tells the program something else"));
  }
  return eager(inputs);
}

std::vector<at::Tensor> Entry::doubted(const std::vector<at::Tensor>& inputs, const std::string& what) {
  const auto placeholders = take_placeholders();
  doubts_.settle(inputs);
  release_run();
  ++stats_.checked;
  CheckedCall call = checked_call(inputs);
  const std::string& text = call.refusal.empty() ? call.difference : call.refusal;
  if (call.refusal.empty() && call.program && answers_differ(*recorded_, *call.program)) {
    outdated(call.difference);
    return call.results;
  }
  if (!text.empty()) {
    const bool again = call.refusal.empty() && ++differences_ < kMostDifferences;
    outdated_reason_ = c10::str(what, ". The difference: ", text);
    run_.reset();
    phase_ = Phase::kFirst;
    if (!again) refuse(outdated_reason_);
    return call.results;
  }
  adopt(std::move(call.run));
  doubts_.renew(run_->program(), run_->bound().buffers());
  phase_ = Phase::kReady;
  return call.results;
}

std::vector<at::Tensor> Entry::doubted_gradients(const std::vector<at::Tensor>& inputs, const char* what) {
  const uint64_t differences = differences_;
  std::vector<at::Tensor> results = doubted(inputs, what);
  if (phase_ == Phase::kFirst) {
    gradients_matter_ = true;
    differences_ = differences;
  }
  return results;
}

std::vector<at::Tensor> Entry::doubted_data(const std::vector<at::Tensor>& inputs, const char* what) {
  return doubted(
      inputs,
      c10::str(
          what,
          " was the same in all recorded calls and is another one now, and the function reads it through a "
          "pointer, as tolist(), an accessor, pack_padded_sequence() and tensor_split() do; make what depends "
          "on it outside the function"));
}

std::vector<at::Tensor> Entry::compared_replay(const std::vector<at::Tensor>& inputs) {
  ++replays_;
  const auto placeholders = take_placeholders();
  std::optional<CheckedCall> call = replay_and_check(inputs);
  if (!call) return eager_after_throw(inputs, run_->other_answer());
  ++stats_.checked;
  const std::string& text = call->refusal.empty() ? call->difference : call->refusal;
  if (call->is_unsure) {
    outdated("memory that the step reads changed while a replay was compared");
    return call->results;
  }
  if (call->is_unrecordable) {
    refuse(text);
    return call->results;
  }
  if (!text.empty()) {
    refuse("OVERDRIVE_CAPTURE_CHECK: a replay differs from the eager call. " + text);
    TORCH_CHECK(false, refusal_);
  }
  undone_in_a_row_ = 0;
  adopt(std::move(call->run));
  doubts_.renew(run_->program(), run_->bound().buffers());
  phase_ = Phase::kReady;
  return call->results;
}

void Entry::explain(std::ostream& out) const {
  for (const InputSignature& input : inputs_)
    out << "input " << at::toString(input.type) << at::IntArrayRef(input.sizes) << "\n";
  static constexpr std::array<const char*, 6> names{"not recorded yet", "to be recorded", "recorded once",
                                                    "replayed once",    "replayed",       "refused"};
  out << names[static_cast<size_t>(phase_)] << ", " << replays_ << " replays, recorded anew " << outdated_
      << " times\n";
  if (!refusal_.empty()) out << "refused: " << refusal_ << "\n";
  if (!outdated_reason_.empty()) out << "recorded anew the last time because: " << outdated_reason_ << "\n";
  call_numbers_.explain(out);
  if (part_ && part_->runs() > 1) out << part_->runs() << " runs, for calls whose graphs live\n";
  if (run_) explain_run(*run_, out);
}

}  // namespace overdrive::replay
