#include "replay/captured_function.h"

#include "engine/base/environment_value.h"
#include "engine/base/json_text.h"
#include "inspect/page/page.h"
#include "replay/file/names.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <thread>

namespace overdrive::replay {

namespace {

// A thread that calls a part so often, and no other does in between, is the part's from then on.
constexpr uint64_t kCallsElsewhere = 16;

constexpr const char* kClosed = "recordings have cost more than replays bring, and no more are made for now";
constexpr const char* kUnproven =
    "recordings have cost more than replays bring so far, and one is made for sizes and types that come again";

// Calls in turn that no recording may take, after which the reason stays.
constexpr uint64_t kEagerInTurn = 4;

// A call that is under way. A second one, of another thread, is not the first; watch() and their like are
// errors then.
class Busy {
 public:
  explicit Busy(std::atomic<std::thread::id>& thread) : Busy(thread, std::try_to_lock) {
    TORCH_CHECK(is_first_, "A captured step was changed while a call of it was under way on another thread.");
  }
  Busy(std::atomic<std::thread::id>& thread, std::try_to_lock_t) : thread_(thread) {
    std::thread::id none;
    is_first_ = thread_.compare_exchange_strong(none, std::this_thread::get_id(), std::memory_order_acquire);
  }
  ~Busy() {
    if (is_first_) thread_.store({}, std::memory_order_release);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  bool is_first() const { return is_first_; }

 private:
  std::atomic<std::thread::id>& thread_;
  bool is_first_;
};

constexpr const char* kSwitchedOff = "OVERDRIVE=0 or OVERDRIVE_CAPTURE=0 is set";

bool is_switched_on() {
  bool on = true;
  for (const char* name : {"OVERDRIVE", "OVERDRIVE_CAPTURE"}) {
    on &= base::value_from_environment(name).value_or(1) == 1;
  }
  return on;
}

}  // namespace

CapturedFunction::CapturedFunction(Function function, CaptureOptions options, Kind kind)
    : function_(std::move(function)),
      options_(std::move(options)),
      counts_(kind == Kind::kPart ? std::make_shared<PartCounts>() : nullptr),
      is_on_(is_switched_on()) {
  TORCH_CHECK(function_, "capture() was given no function.");
  TORCH_CHECK(
      options_.eager_calls >= 1,
      ".eager_calls is 0, and the first call makes what is made once, as threads and states of optimizers: "
      "give 1 or more.");
  for (const auto& module : options_.modules)
    TORCH_CHECK(module, "capture() was given a null module in .modules.");
  for (const torch::optim::Optimizer* optimizer : options_.optimizers)
    TORCH_CHECK(optimizer, "capture() was given a null optimizer in .optimizers.");
}

std::vector<at::Tensor> CapturedFunction::call(const std::vector<at::Tensor>& inputs) {
  return counts_ ? call_part(inputs) : call_step(inputs);
}

std::vector<at::Tensor> CapturedFunction::call_step(const std::vector<at::Tensor>& inputs) {
  const bool is_inside = busy_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  const Busy busy(busy_, std::try_to_lock);
  if (!busy.is_first() && !is_inside) return call_beside(inputs);
  ++stats_.calls;
  if (!is_on_) return eager(inputs, kSwitchedOff);
  if (Recorder* outer = Recorder::active()) {
    outer->refuse("A captured step was called inside another one; capture only the outer function.");
    return eager(inputs, {"called inside another captured step", RefusalKind::kOfThisCall});
  }
  if (is_inside) return eager(inputs, "the function calls its own captured step");
  return call_recording(inputs);
}

// Another thread is in a call, and whatever belongs to the step is that thread's.
std::vector<at::Tensor> CapturedFunction::call_beside(const std::vector<at::Tensor>& inputs) {
  calls_beside_.fetch_add(1, std::memory_order_relaxed);
  std::vector<at::Tensor> results = function_(inputs);
  if (!counts_) detach_all(results);
  return results;
}

// To an outer recording, to another part that runs once more, and to a call that is under way, a part is its
// function.
std::vector<at::Tensor> CapturedFunction::call_part(const std::vector<at::Tensor>& inputs) {
  const Busy busy(busy_, std::try_to_lock);
  if (!busy.is_first() || Recorder::active() || PartFunction::is_running_again()) {
    return call_beside(inputs);
  }
  ++stats_.calls;
  if (!is_on_) return eager(inputs, kSwitchedOff);
  if (at::GradMode::is_enabled() && !is_on_its_thread())
    return eager(inputs,
                 "called on another thread than before; calls there are replayed from the 17th in turn on");
  return call_recording(inputs);
}

// A backward runs nodes by their numbers, and each thread counts its own: eager's nodes of a call on another
// thread stand between nodes that were made elsewhere, where one node for all of them cannot.
bool CapturedFunction::is_on_its_thread() {
  const std::thread::id thread = std::this_thread::get_id();
  if (thread_ == std::thread::id()) thread_ = thread;
  if (thread == thread_) {
    calls_elsewhere_ = 0;
    return true;
  }
  calls_elsewhere_ = std::exchange(last_thread_, thread) == thread ? calls_elsewhere_ + 1 : 1;
  if (calls_elsewhere_ <= kCallsElsewhere) return false;
  thread_ = thread;
  calls_elsewhere_ = 0;
  return true;
}

std::vector<at::Tensor> CapturedFunction::call_recording(const std::vector<at::Tensor>& inputs) {
  current_ = 0;
  if (const char* reason = reason_to_run_eagerly()) return eager(inputs, {reason, RefusalKind::kOfThisCall});
  if (backoff_.take_call()) return eager(inputs, backoff_.reason());
  gradients_.look();
  Recording* recording = recording_for(inputs);
  current_ = recording ? recording->number() : 0;
  if (!recording) return eager(inputs, eager_reason_);
  if (closed() == 3 && !recording->is_ready()) return eager(inputs, {kClosed, RefusalKind::kForAWhile});
  eager_in_turn_ = 0;
  const uint64_t recorded = stats_.recorded;
  std::vector<at::Tensor> results = recording->call(inputs);
  if (stats_.recorded != recorded) weigh_recordings();
  if (const auto leaves = recording->take_leaves_in_turn(); !leaves.empty()) tell_apart_by(leaves);
  return results;
}

void CapturedFunction::tell_apart_by(const std::vector<WeakTensor>& leaves) {
  const bool is_first = !gradients_.is_used();
  if (!gradients_.learn(leaves)) return;
  if (is_first) watched_.emplace_back(&gradients_.pattern(), sizeof(uint64_t));
  recordings_.clear();
}

// After a call that was recorded.
void CapturedFunction::weigh_recordings() {
  uint64_t useful = 0;
  for (const auto& kept : recordings_.all())
    useful += std::min(kept.recording->times_recorded(), kRecordingsOfAProgram);
  backoff_.weigh(stats_, useful, recordings_.all().front().recording->outdated_reason());
}

bool CapturedFunction::would_replay(const std::vector<at::Tensor>& inputs) {
  const Busy busy(busy_, std::try_to_lock);
  if (!busy.is_first() || !is_on_ || Recorder::active() || reason_to_run_eagerly()) return false;
  gradients_.look();
  Recording* recording = recordings_.find(inputs, stats_.calls);
  return recording && recording->would_replay(inputs);
}

Recording* CapturedFunction::recording_for(const std::vector<at::Tensor>& inputs) {
  if (Recording* known = recordings_.find(inputs, stats_.calls)) {
    backoff_.note_known();
    seen_.note_known();
    return known;
  }
  eager_reason_ = refusal_of_inputs(inputs, counts_ != nullptr);
  if (!eager_reason_.empty()) return nullptr;
  if (!may_begin(inputs)) {
    eager_reason_ = {closed() == 1 ? kUnproven : kClosed, RefusalKind::kForAWhile};
    return nullptr;
  }
  if (backoff_.note_new()) {
    eager_reason_ = backoff_.reason();
    return nullptr;
  }
  if (recordings_.size() >= options_.programs) recordings_.forget_unused(stats_.calls);
  if (recordings_.size() >= options_.programs) {
    eager_reason_ = {c10::str("the step already has ", recordings_.size(),
                              " programs, and none fits (CaptureOptions::programs)"),
                     RefusalKind::kOfThisCall};
    return nullptr;
  }
  recordings_.keep_within_bytes();
  std::vector<WatchedValue> watched;
  for (const auto& [address, bytes] : watched_) watched.emplace_back(address, bytes);
  Recording& made = recordings_.add(
      std::make_unique<Recording>(function_, options_, stats_, inputs, watched, given_, counts_), inputs,
      stats_.calls);
  for (const auto& kept : recordings_.all()) {
    if (!kept.recording->has_values_of(made)) kept.recording->note_new_values();
  }
  return &made;
}

bool CapturedFunction::may_begin(const std::vector<at::Tensor>& inputs) {
  const int64_t closed = this->closed();
  if (closed == 0) return true;
  size_t form = hash_of(inputs);
  for (const auto& [address, bytes] : watched_)
    form = c10::hash_combine(form, std::hash<std::string>()(WatchedValue(address, bytes).bytes));
  const bool comes_again = seen_.comes_again(form, *closed_ >> 2);
  return closed == 1 && comes_again;
}

std::vector<at::Tensor> CapturedFunction::eager(const std::vector<at::Tensor>& inputs, Refusal reason) {
  ++stats_.eager;
  ++eager_in_turn_;
  eager_reason_ = std::move(reason);
  std::vector<at::Tensor> results = function_(inputs);
  if (!counts_) detach_all(results);
  return results;
}

void CapturedFunction::watch(const void* value, size_t bytes) {
  TORCH_CHECK(value, "watch() was given a null pointer.");
  const Busy busy(busy_);
  watched_.emplace_back(value, bytes);
  recordings_.clear();
}

void CapturedFunction::reset() {
  const Busy busy(busy_);
  backoff_.end();
  recordings_.clear();
}

FunctionToSave CapturedFunction::to_save(std::string name) {
  const Busy busy(busy_);
  TORCH_CHECK(!counts_, "A captured part cannot be saved: its graph goes on outside. Capture the whole step.");
  FunctionToSave function{.name = std::move(name)};
  const Recording* const last = recordings_.last_used();
  for (const auto& kept : recordings_.all()) {
    if (!kept.recording->has_values_of(*last)) continue;
    if (auto program = kept.recording->to_save()) function.programs.push_back(*program);
  }
  const std::string reason =
      last && last->wants_casts()
          ? "it is called inside of an autocast context; enter the context in the function."
      : gradients_.is_used() ? "it finds gradients in some calls and none in others; zero_grad(false) (Python: "
                               "set_to_none=False) keeps them."
                             : refusal();
  TORCH_CHECK(
      !function.programs.empty(), "The step cannot be saved: ",
      reason.empty() ? "no call of it is replayed yet; call it until stats().replayed counts." : reason);
  return function;
}

std::vector<std::pair<std::string, at::Tensor>> CapturedFunction::names() const {
  NamedTensors names = names_of(options_.modules);
  const std::vector<torch::optim::Optimizer*> optimizers = optimizers_of(options_);
  for (size_t i = 0; i < optimizers.size(); ++i)
    add_names(names, names_of(*optimizers[i], names), c10::str("optimizer", i));
  return names;
}

bool CapturedFunction::has_met_one_of(const std::vector<at::Tensor>& tensors) const {
  const auto& all = recordings_.all();
  return std::any_of(all.begin(), all.end(),
                     [&](const KeptRecordings::Kept& kept) { return kept.recording->has_met_one_of(tensors); });
}

CaptureStats CapturedFunction::stats() const {
  CaptureStats stats = stats_;
  const uint64_t beside = calls_beside_.load(std::memory_order_relaxed);
  stats.calls += beside;
  stats.eager += beside;
  if (counts_) {
    stats.backwards = counts_->replayed.load(std::memory_order_relaxed);
    stats.again = counts_->again.load(std::memory_order_relaxed);
  }
  return stats;
}

std::string CapturedFunction::refusal() const {
  return resting() == 0 ? reason().text
                        : c10::str(reason().text, " The next ", resting(), " calls run eagerly.");
}

Refusal CapturedFunction::reason() const {
  if (!is_on_) return kSwitchedOff;
  if (backoff_.is_resting()) return backoff_.reason();
  for (const auto& kept : recordings_.all()) {
    if (!kept.recording->refusal().empty()) return kept.recording->refusal();
  }
  const bool stays = eager_in_turn_ >= kEagerInTurn && eager_reason_.kind != RefusalKind::kForAWhile;
  return stays ? eager_reason_ : Refusal();
}

Refusal CapturedFunction::last_reason() const {
  if (!eager_reason_.empty()) return eager_reason_;
  for (const auto& kept : recordings_.all()) {
    if (!kept.recording->outdated_reason().empty()) return kept.recording->outdated_reason();
  }
  return {};
}

bool CapturedFunction::has_differed() const {
  return std::any_of(recordings_.all().begin(), recordings_.all().end(), [](const auto& kept) {
    return kept.recording->refusal().kind == RefusalKind::kReplayDiffers;
  });
}

std::string CapturedFunction::explain() const {
  std::ostringstream out;
  out << stats_.calls << " calls: " << stats_.replayed << " replayed, " << stats_.recorded << " recorded, "
      << stats_.checked << " checked, " << stats_.eager << " eager, " << stats_.undone << " undone\n";
  return out.str() + explain_programs();
}

std::string CapturedFunction::explain_programs() const {
  std::ostringstream out;
  if (const uint64_t beside = calls_beside_.load(std::memory_order_relaxed))
    out << beside << " more calls ran eagerly while another thread was in one\n";
  if (!eager_reason_.empty())
    out << "the last call that was eager for another reason: " << eager_reason_.text << "\n";
  for (size_t i = 0; i < recordings_.size(); ++i) {
    out << "program " << i << "\n";
    recordings_.all()[i].recording->explain(out);
  }
  return out.str();
}

std::string CapturedFunction::lanes_json() const {
  return base::json_list(
      recordings_.all(), [](const auto& kept) { return kept.recording->lanes_json(); }, ",\n");
}

std::string CapturedFunction::lanes_page(const std::string& title) const {
  using namespace inspect;
  const std::string json = "{\"title\": " + base::json_quoted(title) + ", \"lanes\": " + lanes_json() + "}";
  return page_of("Overdrive: lanes of " + title, std::string(kNumbersStyle) + kLanesStyle,
                 std::string(kNumbersScript) + kLanesScript, json);
}

}  // namespace overdrive::replay
