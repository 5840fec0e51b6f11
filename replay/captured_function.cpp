#include "replay/captured_function.h"

#include "replay/capture.h"
#include "replay/file/names.h"
#include "replay/file/write_step.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <sstream>
#include <string_view>
#include <thread>

namespace overdrive::replay {

namespace {

// A program that no call has fitted for this many times as many calls as there are programs makes room.
constexpr uint64_t kUnusedCalls = 16;

// Recordings for one set of sizes and modes that differ by what parameters were then.
constexpr size_t kMostStates = 4;

// Of all programs of a step; the last used one stays, however large it is.
constexpr size_t kMostProgramBytes = size_t{256} << 20;

// A call that is recorded costs about so many eager ones, of which a replay saves a part. Where
// recordings have cost so many more than replays have brought, calls run eagerly for a while, each time longer.
constexpr int64_t kCostOfARecording = 18;
constexpr int64_t kMostDebt = 1500;
constexpr uint64_t kRest = 512;
constexpr uint64_t kMostRests = 8;
// What a program costs that is kept, for as long as it is: it may bring replays yet.
constexpr uint64_t kRecordingsOfAProgram = 3;
// Calls in turn with sizes that no call had before, after which calls run eagerly, too; and how many try again
// after such a rest.
constexpr uint64_t kMostNew = 512, kNewAgain = 64;
// With fewer programs each is asked whether it fits.
constexpr size_t kFewPrograms = 4;

// A thread that calls a part so often, and no other does in between, is the part's from then on.
constexpr uint64_t kCallsElsewhere = 16;

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

// Of sizes and types alone: programs with another one do not fit.
size_t hash_of(const std::vector<at::Tensor>& inputs) {
  size_t hash = inputs.size();
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) continue;
    hash = c10::hash_combine(hash, static_cast<size_t>(input.scalar_type()));
    for (const int64_t size : input.sizes()) hash = c10::hash_combine(hash, static_cast<size_t>(size));
  }
  return hash;
}

bool is_switched_on() {
  bool on = true;
  for (const char* name : {"OVERDRIVE", "OVERDRIVE_CAPTURE"}) {
    const char* text = std::getenv(name);
    if (!text || !*text) continue;
    const std::string_view value = text;
    TORCH_CHECK(value == "0" || value == "1", name, " is \"", value, "\", but must be one of 0|1.");
    on &= value == "1";
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
  for (const auto& module : options_.modules)
    TORCH_CHECK(module, "capture() was given a null module in .modules.");
  for (const torch::optim::Optimizer* optimizer : options_.optimizers)
    TORCH_CHECK(optimizer, "capture() was given a null optimizer in .optimizers.");
}

std::vector<at::Tensor> CapturedFunction::call(const std::vector<at::Tensor>& inputs) {
  if (counts_) return call_part(inputs);
  const bool is_inside = busy_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  const Busy busy(busy_, std::try_to_lock);
  if (!busy.is_first() && !is_inside) return call_beside(inputs);
  ++stats_.calls;
  if (!is_on_) return eager(inputs, "OVERDRIVE=0 or OVERDRIVE_CAPTURE=0 is set");
  if (Recorder* outer = Recorder::active()) {
    outer->refuse("A captured step was called inside another one; capture only the outer function.");
    return eager(inputs, "called inside another captured step");
  }
  if (is_inside) return eager(inputs, "the function calls its own captured step");
  return call_entry(inputs);
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
  if (!is_on_) return eager(inputs, "OVERDRIVE=0 or OVERDRIVE_CAPTURE=0 is set");
  if (at::GradMode::is_enabled() && !is_on_its_thread())
    return eager(inputs,
                 "called on another thread than before; calls there are replayed from the 17th in turn on");
  return call_entry(inputs);
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

std::vector<at::Tensor> CapturedFunction::call_entry(const std::vector<at::Tensor>& inputs) {
  current_ = 0;
  if (const char* reason = reason_to_run_eagerly()) return eager(inputs, reason);
  if (is_resting()) return eager(inputs, rest_reason_);
  Entry* entry = entry_for(inputs);
  current_ = entry ? entry->number() : 0;
  if (!entry) return eager(inputs, eager_reason_);
  eager_in_turn_ = 0;
  const uint64_t recorded = stats_.recorded;
  std::vector<at::Tensor> results = entry->call(inputs);
  weigh_recordings(recorded);
  return results;
}

bool CapturedFunction::is_resting() {
  if (rest_ == 0) return false;
  --rest_;
  return true;
}

void CapturedFunction::weigh_recordings(uint64_t recorded_before) {
  if (stats_.recorded == recorded_before) return;
  uint64_t wasted = stats_.recorded;
  for (const Kept& kept : entries_) wasted -= std::min(kept.entry->recordings(), kRecordingsOfAProgram);
  const int64_t debt =
      kCostOfARecording * static_cast<int64_t>(wasted) - static_cast<int64_t>(stats_.replayed) - forgiven_;
  if (debt <= kMostDebt) return;
  forgiven_ += debt / 4;
  rest("Recordings are made so often, and fit so seldom, that nothing is gained; the next ",
       c10::str(" The last reason: ",
                entries_.front().entry->outdated_reason().empty()
                    ? "other sizes, types, strides or modes in each call"
                    : entries_.front().entry->outdated_reason(),
                "."));
}

void CapturedFunction::rest(const char* reason, const std::string& more) {
  rest_ = kRest << std::min(rests_++, kMostRests);
  rest_reason_ = c10::str(reason, rest_, " calls run eagerly.", more);
}

// Before a call makes a new program.
bool CapturedFunction::are_sizes_always_new() {
  if (++new_in_turn_ <= kMostNew) return false;
  new_in_turn_ = kMostNew - kNewAgain;
  rest(
      "Sizes, types, strides or modes of the inputs have been new in very many calls in turn, and a program is "
      "for those that come again: pad batches to a few sizes. The next ",
      "");
  return true;
}

bool CapturedFunction::would_replay(const std::vector<at::Tensor>& inputs) {
  const Busy busy(busy_, std::try_to_lock);
  if (!busy.is_first() || !is_on_ || Recorder::active() || reason_to_run_eagerly()) return false;
  Entry* entry = known_entry_for(inputs);
  return entry && entry->would_replay(inputs);
}

Entry* CapturedFunction::known_entry_for(const std::vector<at::Tensor>& inputs) {
  const Environment environment = Environment::now();
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  const size_t hash = entries_.size() > kFewPrograms ? hash_of(inputs) : 0;
  size_t found = kNone, begun = kNone, waiting = kNone, first_declined = kNone, declined = 0;
  for (size_t i = 0; i < entries_.size() && found == kNone; ++i) {
    Entry& entry = *entries_[i].entry;
    if ((hash != 0 && hash != entries_[i].hash) || !entry.fits(environment, inputs)) continue;
    if (entry.declines()) {
      first_declined = std::min(first_declined, i);
      ++declined;
    } else if (entry.is_ready()) {
      found = i;
    } else {
      size_t& first = entry.has_flags() ? begun : waiting;
      first = std::min(first, i);
    }
  }
  // Another one may be of this state, as of a half that is frozen in turns; or is recorded now.
  if (found == kNone) found = begun;
  if (found == kNone) found = waiting;
  if (found == kNone && declined >= kMostStates) found = first_declined;
  if (found == kNone) return nullptr;
  const auto begin = entries_.begin(), at = begin + static_cast<ptrdiff_t>(found);
  if (found > 0) std::rotate(begin, at, at + 1);
  entries_.front().used = stats_.calls;
  return entries_.front().entry.get();
}

Entry* CapturedFunction::entry_for(const std::vector<at::Tensor>& inputs) {
  if (Entry* known = known_entry_for(inputs)) {
    new_in_turn_ = 0;
    return known;
  }
  eager_reason_ = refusal_of_inputs(inputs, counts_ != nullptr);
  if (!eager_reason_.empty()) return nullptr;
  if (are_sizes_always_new()) {
    eager_reason_ = rest_reason_;
    return nullptr;
  }
  if (entries_.size() >= options_.programs) forget_unused();
  if (entries_.size() >= options_.programs) {
    eager_reason_ = c10::str("the step already has ", entries_.size(),
                             " programs, and none fits (CaptureOptions::programs)");
    return nullptr;
  }
  keep_within_bytes();
  std::vector<WatchedValue> watched;
  for (const auto& [address, bytes] : watched_) watched.emplace_back(address, bytes);
  entries_.insert(entries_.begin(),
                  {std::make_unique<Entry>(function_, options_, stats_, inputs, watched, given_, counts_),
                   stats_.calls, hash_of(inputs)});
  return entries_.front().entry.get();
}

void CapturedFunction::keep_within_bytes() {
  size_t bytes = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    bytes += entries_[i].entry->bytes();
    if (i == 0 || bytes <= kMostProgramBytes) continue;
    entries_.resize(i);
    return;
  }
}

// One, so that many sets of sizes in turn do not push each other out.
void CapturedFunction::forget_unused() {
  const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                       [](const Kept& a, const Kept& b) { return a.used < b.used; });
  if (oldest == entries_.end() || stats_.calls - oldest->used <= kUnusedCalls * entries_.size()) return;
  entries_.erase(oldest);
}

std::vector<at::Tensor> CapturedFunction::eager(const std::vector<at::Tensor>& inputs, std::string reason) {
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
  entries_.clear();
}

void CapturedFunction::reset() {
  const Busy busy(busy_);
  rest_ = new_in_turn_ = 0;
  entries_.clear();
}

FunctionToSave CapturedFunction::to_save(std::string name) {
  const Busy busy(busy_);
  TORCH_CHECK(!counts_, "A captured part cannot be saved: its graph goes on outside. Capture the whole step.");
  FunctionToSave function{.name = std::move(name)};
  const auto last = std::max_element(entries_.begin(), entries_.end(),
                                     [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (Kept& kept : entries_) {
    if (!kept.entry->has_values_of(*last->entry)) continue;
    if (auto program = kept.entry->to_save()) function.programs.push_back(*program);
  }
  const std::string reason =
      last != entries_.end() && last->entry->wants_casts()
          ? "it is called inside of an autocast context; enter the context in the function."
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
  if (rest_ > 0) return rest_reason_;
  for (const Kept& kept : entries_) {
    if (!kept.entry->refusal().empty()) return kept.entry->refusal();
  }
  return eager_in_turn_ >= kEagerInTurn ? eager_reason_ : "";
}

std::string CapturedFunction::explain() const {
  std::ostringstream out;
  out << stats_.calls << " calls: " << stats_.replayed << " replayed, " << stats_.recorded << " recorded, "
      << stats_.checked << " checked, " << stats_.eager << " eager, " << stats_.undone << " undone\n";
  if (const uint64_t beside = calls_beside_.load(std::memory_order_relaxed))
    out << beside << " more calls ran eagerly while another thread was in one\n";
  if (!eager_reason_.empty())
    out << "the last call that was eager for another reason: " << eager_reason_ << "\n";
  for (size_t i = 0; i < entries_.size(); ++i) {
    out << "program " << i << "\n";
    entries_[i].entry->explain(out);
  }
  return out.str();
}

}  // namespace overdrive::replay

namespace overdrive {

namespace {

replay::CapturedFunction& present(const std::unique_ptr<replay::CapturedFunction>& captured) {
  TORCH_CHECK(captured, "The captured step was moved to another one; call that one.");
  return *captured;
}

}  // namespace

CapturedStep::CapturedStep(replay::Function function, CaptureOptions options)
    : CapturedStep(std::move(function), std::move(options), false) {}
CapturedStep::CapturedStep(replay::Function function, CaptureOptions options, bool is_part)
    : captured_(std::make_unique<replay::CapturedFunction>(
          std::move(function), std::move(options),
          is_part ? replay::CapturedFunction::Kind::kPart : replay::CapturedFunction::Kind::kStep)) {}
CapturedStep::~CapturedStep() = default;
CapturedStep::CapturedStep(CapturedStep&&) noexcept = default;
CapturedStep& CapturedStep::operator=(CapturedStep&&) noexcept = default;

std::vector<at::Tensor> CapturedStep::call(const std::vector<at::Tensor>& inputs) {
  return present(captured_).call(inputs);
}
bool CapturedStep::would_replay(const std::vector<at::Tensor>& inputs) {
  return present(captured_).would_replay(inputs);
}
void CapturedStep::watch_bytes(const void* value, size_t bytes) { present(captured_).watch(value, bytes); }
void CapturedStep::save(const std::string& path, const SaveOptions& options) const {
  save_steps(path, {{"step", this}}, options);
}
void CapturedStep::reset() { present(captured_).reset(); }
CaptureStats CapturedStep::stats() const { return present(captured_).stats(); }
std::string CapturedStep::refusal() const { return present(captured_).refusal(); }
std::string CapturedStep::explain() const { return present(captured_).explain(); }

void save_steps(const std::string& path,
                const std::vector<std::pair<std::string, const CapturedStep*>>& functions,
                const SaveOptions& options) {
  SaveOptions all = options;
  std::vector<replay::FunctionToSave> to_save;
  for (const auto& [name, step] : functions) {
    TORCH_CHECK(step, "save_steps() was given a null step.");
    replay::CapturedFunction& captured = present(step->captured_);
    replay::add_names(all.names, captured.names(), name);
    to_save.push_back(captured.to_save(name));
  }
  replay::write_step(path, to_save, all);
}

}  // namespace overdrive
