#include "replay/lanes/lane_run.h"

#include "engine/base/environment_value.h"
#include "engine/base/float_modes.h"
#include "engine/base/no_destructor.h"
#include "replay/lanes/steady_schedule.h"
#include "replay/run/below_autograd.h"

#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace overdrive::replay {

namespace {

// Note [Lanes]
// A replay on several lanes has the bits of one lane, because each operator sees the memory that it would see
// alone: of two steps that touch one byte, the second waits for the first, unless both read
// it (plan/dependencies, by the addresses that the memory plan gave). A large operator is divided only where
// each element is computed by the same loop of the same kernel (bind/share.h), and only after a replay in which
// it has run whole and in shares, with the same bits. Random numbers of all generators,
// operators that nobody knows, and whatever must not happen before something else has succeeded wait in the
// same way. So the order in which lanes arrive decides nothing. Errors: the error of a replay is that of the
// first step in the program's order that throws, as on one lane. Steps before it run to their end, wherever
// they are; steps behind it are left out from then on. What cannot be put back is changed only after every step
// before it that may throw. Settings of the thread that decide a kernel's bits are those of the caller, in each
// call. A lane runs each kernel with one thread, so a step that was recorded with more stays on one lane.

constexpr int kTimedRuns = 4, kTriedRuns = 12, kNotedRuns = 4;
// What a hand-over costs beside the signal, in nanoseconds: the tensors of the step lie in the other
// processor's cache. It keeps chains on their lanes.
constexpr double kMoves = 2000;
// Of the signal, where there is no second processor to measure it on.
constexpr double kUsualHandOver = 300;
// A schedule must promise so much, and a trial must show so much.
constexpr double kLeastGain = 1.1, kLeastTriedGain = 1.03;
// What shares must gain beside whole steps, by the schedules: their lanes wait for each other more often, which
// costs where another program takes a processor.
constexpr double kLeastGainOfShares = 1.08;
constexpr uint64_t kFirstRest = 1000;
constexpr int kMostLanes = 64;
constexpr int kNobody = std::numeric_limits<int>::max();

using Clock = std::chrono::steady_clock;

double nanoseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

LaneTrial& trial_of_process() {
  static base::NoDestructor<LaneTrial> trial;
  return *trial;
}

void set_float_modes(uint32_t modes) {
  if (modes == base::float_modes()) return;
#if defined(__x86_64__)
  _mm_setcsr(modes);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{modes}));
#endif
}

// The grad mode as it was recorded, for boxed steps, which look at it.
class GradModeOfSteps {
 public:
  void set_for(const ReplayRun& run, const ReplayStep& step) {
    const bool wanted = run.program().operators[step.op].grad_mode;
    if (step.boxed && wanted != mode_) at::GradMode::set_enabled(mode_ = wanted);
  }

 private:
  bool mode_ = at::GradMode::is_enabled();
};

// Somebody looks at each operator, on the thread of the call.
bool is_watched() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value(); }

// A mode of Python or of functorch sees operators inside of others, on the thread of the call.
bool is_in_a_mode() {
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  return included.has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                               c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                               c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
}

// Warnings of a lane are the caller's, whose handler they would not reach.
struct KeptWarnings final : c10::WarningHandler {
  explicit KeptWarnings(std::vector<c10::Warning>& to) : kept(to) {}
  void process(const c10::Warning& warning) override { kept.push_back(warning); }
  std::vector<c10::Warning>& kept;
};

}  // namespace

void try_lanes(const LaneTrial& trial) {
  trial_of_process() = trial;
  LaneThreads::get().set_cores(trial.cores);
}
const LaneTrial& lane_trial() { return trial_of_process(); }

int lanes_asked_for(int option) {
  TORCH_CHECK(option >= 0, "CaptureOptions::lanes is ", option, ", but must be 0 or more.");
  return option == 1 ? base::value_from_environment("OVERDRIVE_CAPTURE_LANES").value_or(option) : option;
}

struct LaneRun::Surroundings {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  c10::AutogradState modes = c10::AutogradState::get_tls_state();
  uint32_t floats = base::float_modes();

  void take_over() const {
    c10::impl::_force_tls_local_dispatch_key_set(keys);
    c10::AutogradState::set_tls_state(modes);
    set_float_modes(floats);
  }
};

LaneRun::~LaneRun() = default;

LaneRun::LaneRun(const ReplayRun& run, int lanes, int threads)
    : run_(run),
      most_lanes_(std::min({lanes == 0 ? kMostLanes : lanes, LaneThreads::get().cores(), kMostLanes})),
      trial_(lane_trial()),
      division_(undivided(run)),
      steps_{Pieces(run, division_), std::vector<double>(run.steps().size(), kNotTried)} {
  if (threads != 1) {
    stay_on_one_lane("the step was recorded with several threads inside an operator");
  } else if (!steps_.pieces.before()) {
    stay_on_one_lane("too many of its operators may throw before others");
  }
  if (!trial_.always) return;
  set_made_up_costs(steps_.costs);
  timed_ = kTimedRuns;
}

void LaneRun::set_made_up_costs(std::vector<double>& costs) const {
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = 1 + static_cast<double>(mixed(trial_.seed + i) % 1000);
}

void LaneRun::divide() {
  try {
    if (trial_.shares > 0) {
      division_ = divided(run_, std::vector<double>(run_.steps().size(), trial_.shares), trial_.shares, 1);
    } else if (!trial_.always) {
      division_ = divided(run_, steps_.costs, most_lanes_, kLeastShare);
    }
  } catch (const std::exception&) {  // of a trial on other numbers, or no memory: no step has run yet
    division_ = undivided(run_);
  }
  phase_ = count_divided(division_) > 0 ? Phase::kProves : Phase::kPlans;
}

// Each divided step twice, whole and in shares.
void LaneRun::prove_shares(size_t& done) {
  const BelowAutograd scope;
  GradModeOfSteps grad_mode;
  for (done = 0; done < run_.steps().size(); ++done) {
    const ReplayStep& step = run_.steps()[done];
    std::vector<Share>& shares = division_[done];
    grad_mode.set_for(run_, step);
    if (shares.empty()) {
      step.step();
    } else if (!have_bits_of_the_whole(run_, step, shares)) {
      shares.clear();
    }
  }
}

bool LaneRun::prepare(size_t& done) {
  if (phase_ == Phase::kTimes && timed_ == kTimedRuns) {
    if (most_lanes_ < 2)
      stay_on_one_lane("the process has one processor");
    else
      divide();
  }
  switch (phase_) {
    case Phase::kTimes:
      run_alone(steps_.pieces, done, &steps_.costs);
      ++timed_;
      return true;
    case Phase::kProves: {
      prove_shares(done);
      Pieces pieces(run_, division_);
      const bool is_worth_it = count_divided(division_) > 0 && pieces.before();
      phase_ = is_worth_it && !trial_.always ? Phase::kTimesShares : Phase::kPlans;
      timed_ = 0;
      if (!is_worth_it) return true;
      std::vector<double> costs(pieces.size(), kNotTried);
      if (trial_.always) set_made_up_costs(costs);
      shares_ = std::make_unique<TimedPieces>(TimedPieces{std::move(pieces), std::move(costs)});
      return true;
    }
    case Phase::kTimesShares:
      run_alone(shares_->pieces, done, &shares_->costs);
      if (++timed_ == kTimedRuns) phase_ = Phase::kPlans;
      return true;
    default:
      return false;
  }
}

void LaneRun::stay_on_one_lane(const char* reason) {
  phase_ = Phase::kOneLane;
  reason_ = reason;
}

double LaneRun::hand_over_and_moves() const {
  if (trial_.always) return hand_over_;
  return (hand_over_ > 0 ? hand_over_ : kUsualHandOver) + kMoves;
}

double LaneRun::work() const { return std::accumulate(steps_.costs.begin(), steps_.costs.end(), 0.); }

bool LaneRun::is_better(const Schedule& with_shares, const Schedule& whole) {
  return with_shares.end * kLeastGainOfShares < whole.end;
}

// Of two schedules that are nearly as good, the one with fewer lanes.
Schedule LaneRun::best_schedule(const TimedPieces& timed) const {
  const StepsToSchedule steps = timed.to_schedule();
  Schedule best;
  for (int lanes = trial_.always ? most_lanes_ : 2; lanes <= most_lanes_; ++lanes) {
    Schedule next = steady_schedule(steps, lanes, hand_over_and_moves());
    if (best.lanes.empty() || next.end < 0.95 * best.end) best = std::move(next);
  }
  return best;
}

void LaneRun::make_schedule() {
  hand_over_ = trial_.always ? 1 : LaneThreads::get().hand_over();
  if (hand_over_ <= 0) return;  // all processors are taken: in a later run
  schedule_ = best_schedule(steps_);
  pieces_ = &steps_.pieces;
  if (shares_) {
    Schedule with_shares = best_schedule(*shares_);
    if (trial_.shares > 0 || is_better(with_shares, schedule_)) {
      with_shares.work = schedule_.work;
      schedule_ = std::move(with_shares);
      pieces_ = &shares_->pieces;
    }
  }
  lanes_.clear();
  for (size_t i = 0; i < schedule_.lanes.size(); ++i) lanes_.push_back(std::make_unique<Lane>());
  surroundings_ = std::make_unique<Surroundings>();
  phase_ = trial_.always || trial_.is_trusted ? Phase::kLanes : Phase::kTries;
  if (!trial_.always && schedule_.gain() < kLeastGain) stay_on_one_lane("lanes would bring less than a tenth");
}

bool LaneRun::run(size_t& done, bool& changed) {
  if (phase_ == Phase::kOneLane && rest_ > 0 && --rest_ == 0) phase_ = Phase::kTries;
  if (phase_ == Phase::kOneLane || is_watched() || is_in_a_mode()) return false;
  if (prepare(done)) return true;
  if (phase_ == Phase::kPlans) make_schedule();
  if (phase_ != Phase::kTries && phase_ != Phase::kLanes) return false;
  LaneLease lease(static_cast<int>(schedule_.lanes.size()));
  if (!lease) return false;
  if (phase_ == Phase::kLanes && rest_ > 0 && --rest_ == 0) phase_ = Phase::kTries;
  if (phase_ == Phase::kTries) {
    run_tried(lease, done, changed);
  } else if (noted_ < kNotedRuns) {
    run_noted(lease, done, changed);
  } else {
    run_on_lanes(lease, done, changed);
  }
  return true;
}

// Lanes and one lane in turn. Other programs may have had the processors, or have them later: it is tried
// again.
void LaneRun::run_tried(LaneLease& lease, size_t& done, bool& changed) {
  if (tried_ >= kTriedRuns) {
    run_noted(lease, done, changed);
    if (noted_ == kNotedRuns) decide();
    return;
  }
  const bool on_lanes = tried_ % 2 == 0;
  const auto begin = Clock::now();
  on_lanes ? run_on_lanes(lease, done, changed) : run_alone(steps_.pieces, done, nullptr);
  double& best = on_lanes ? best_of_lanes_ : best_of_one_;
  if (tried_ < 2) best = kNotTried;
  best = std::min(best, nanoseconds_since(begin));
  if (++tried_ == kTriedRuns && noted_ == kNotedRuns) decide();
}

void LaneRun::decide() {
  tried_ = 0;
  rest_ = last_rest_ = last_rest_ == 0 ? kFirstRest : 4 * last_rest_;
  phase_ = Phase::kLanes;
  if (best_of_lanes_ * kLeastTriedGain > best_of_one_)
    stay_on_one_lane("lanes were no faster when they were tried");
}

void LaneRun::run_alone(const Pieces& pieces, size_t& done, std::vector<double>* costs) const {
  const BelowAutograd scope;
  GradModeOfSteps grad_mode;
  auto begin = Clock::now();
  for (size_t i = 0; i < pieces.size(); ++i) {
    done = pieces[i].step;
    grad_mode.set_for(run_, run_.steps()[done]);
    (*pieces[i].work)();
    if (!costs) continue;
    const auto end = Clock::now();
    double& cost = (*costs)[i];
    cost = std::min(cost, std::chrono::duration<double, std::nano>(end - begin).count());
    begin = end;
  }
}

void LaneRun::run_noted(LaneLease& lease, size_t& done, bool& changed) {
  ++noted_;
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->times.resize(schedule_.lanes[i].size());
  begin_ = Clock::now();
  run_on_lanes(lease, done, changed, true);
  const double whole = nanoseconds_since(begin_);
  if (whole >= seen_whole_) return;
  seen_whole_ = whole;
  seen_.clear();
  for (const auto& lane : lanes_) seen_.push_back(lane->times);
}

void LaneRun::run_on_lanes(LaneLease& lease, size_t& done, bool& changed, bool is_noted) {
  const BelowAutograd scope;
  is_noted_ = is_noted;
  *surroundings_ = Surroundings();
  for (const auto& lane : lanes_) lane->turns.reset(0);
  last_piece_.store(kNobody, std::memory_order_relaxed);
  has_changed_.store(false, std::memory_order_relaxed);
  ++runs_;
  lease.begin(*this);
  work_through(0);
  lease.end();
  repeat_warnings();
  const base::MutexLock lock(mutex_);
  if (!error_) return;
  done = (*pieces_)[thrown_by_].step;
  changed = has_changed_.load(std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void LaneRun::work(int lane) noexcept {
  surroundings_->take_over();
  KeptWarnings handler(lanes_[lane]->warnings);
  const c10::WarningUtils::WarningHandlerGuard kept(&handler);
  work_through(lane);
}

void LaneRun::work_through(int lane) {
  const std::vector<Schedule::Turn>& turns = schedule_.lanes[lane];
  Signal& own = lanes_[lane]->turns;
  std::vector<TimedTurn>& times = lanes_[lane]->times;
  const bool is_noted = is_noted_;
  const std::chrono::microseconds awake = LaneThreads::get().awake();
  GradModeOfSteps grad_mode;
  for (uint32_t i = 0; i < turns.size(); ++i) {
    const Schedule::Turn& turn = turns[i];
    for (const Schedule::Wait& wait : turn.waits)
      lanes_[wait.lane]->turns.await(awake, [&](uint32_t ended) { return ended >= wait.turns; });
    if (is_noted) times[i].begin = nanoseconds_since(begin_);
    if (turn.step < last_piece_.load(std::memory_order_relaxed)) {
      grad_mode.set_for(run_, run_.steps()[(*pieces_)[turn.step].step]);
      run_piece(turn.step);
    }
    if (is_noted) times[i].end = nanoseconds_since(begin_);
    if (turn.is_awaited) own.set(i + 1);
  }
}

void LaneRun::run_piece(int piece) {
  if (trial_.longest_delay > 0) delay(piece);
  const Piece& run = (*pieces_)[piece];
  if (run.changes_unsaved) has_changed_.store(true, std::memory_order_relaxed);
  try {
    (*run.work)();
  } catch (...) {
    if (!base::thread_is_ending()) return note_error(piece);
    // The caller's thread, which leaves in the middle: nothing runs any more, and nobody waits for it.
    last_piece_.store(-1, std::memory_order_relaxed);
    lanes_[0]->turns.set(static_cast<uint32_t>(schedule_.lanes[0].size()));
    throw;
  }
}

void LaneRun::note_error(int piece) noexcept {
  const base::MutexLock lock(mutex_);
  if (error_ && thrown_by_ < piece) return;
  error_ = std::current_exception();
  thrown_by_ = piece;
  last_piece_.store(piece, std::memory_order_relaxed);
}

// Every fourth piece, as a rule: the others come first then.
void LaneRun::delay(int piece) const {
  const uint64_t number = mixed(trial_.seed * 1000003 + runs_ * 7919 + static_cast<uint64_t>(piece));
  if (number % 4 != 0) return;
  const double late = 1000. * static_cast<double>(number / 4 % (trial_.longest_delay + 1));
  const auto begin = Clock::now();
  while (nanoseconds_since(begin) < late) {
  }
}

void LaneRun::repeat_warnings() noexcept {
  for (const auto& lane : lanes_) {
    for (const c10::Warning& warning : std::exchange(lane->warnings, {})) {
      try {
        c10::WarningUtils::get_warning_handler()->process(warning);
      } catch (const std::exception&) {  // of a handler: the steps are done, and there is nothing to take back
      }
    }
  }
}

}  // namespace overdrive::replay
