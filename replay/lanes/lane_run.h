// The steps of a replay on several lanes: the calling thread and threads of the pool. Owned by its ReplayRun,
// called by one thread at a time. First times the steps, then divides the large ones and times their shares,
// then makes the schedule, then tries whether it is faster and notes the times of some runs. Knows nothing of
// recordings and guards.
#pragma once

#include "engine/base/mutex.h"
#include "replay/lanes/division.h"
#include "replay/lanes/lane_threads.h"
#include "replay/lanes/lane_trial.h"
#include "replay/lanes/pieces.h"
#include "replay/lanes/schedule.h"
#include "replay/lanes/timeline.h"
#include "replay/run/replay_run.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::replay {

class LanesDrawing;

// CaptureOptions::lanes, or, where it is 1, OVERDRIVE_CAPTURE_LANES. 0: as many as help.
int lanes_asked_for(int option);

class LaneRun final : public StepRunner, private LaneWork {
 public:
  // The run outlives the object. `lanes`: at most; 0: as many as help. `threads`: of LibTorch, inside one
  // operator, as the step was recorded.
  LaneRun(const ReplayRun& run, int lanes, int threads);
  ~LaneRun() override;

  bool run(size_t& done, bool& changed) override;
  void explain(std::ostream& out) const override;
  std::string to_json() const override;

 private:
  // In this order; kLanes and kOneLane lead back to kTries after a rest.
  enum class Phase : uint8_t {
    kTimes,        // runs alone, and times each step
    kProves,       // runs large steps whole and in shares, and compares the bits
    kTimesShares,  // runs alone, and times each share
    kPlans,        // the next run makes the schedule
    kTries,        // runs on lanes and on one lane in turn
    kLanes,        // lanes were faster
    kOneLane,      // they were not, or cannot be
  };
  // What decides a kernel's bits, and belongs to a thread.
  struct Surroundings;
  // What another thread wrote last lies in a cache line of its own.
  struct Lane {
    Signal turns;
    std::vector<c10::Warning> warnings;
    // Of a run that is noted.
    std::vector<TimedTurn> times;
  };

  void set_made_up_costs(std::vector<double>& costs) const;
  void divide();
  // A run on one lane on the way to a schedule. False: it is time to make one.
  bool prepare(size_t& done);
  void prove_shares(size_t& done);
  // What a schedule counts for a hand-over: the signal, and the tensors that move with it.
  double hand_over_and_moves() const;
  Schedule best_schedule(const TimedPieces& timed) const;
  static bool is_better(const Schedule& with_shares, const Schedule& whole);
  void make_schedule();
  void stay_on_one_lane(const char* reason);
  // Of all steps on one lane, in nanoseconds.
  double work() const;

  // For more lanes than there are, lane_run_text.cpp.
  TimedPieces shares_for(int lanes, Division& division) const;
  void draw_simulated(LanesDrawing& drawing, int lanes) const;

  // `costs`: null: nobody asks.
  void run_alone(const Pieces& pieces, size_t& done, std::vector<double>* costs) const;
  void run_on_lanes(LaneLease& lease, size_t& done, bool& changed, bool is_noted = false);
  void run_tried(LaneLease& lease, size_t& done, bool& changed);
  // On lanes, and keeps the times of its turns where no run that was noted before was shorter.
  void run_noted(LaneLease& lease, size_t& done, bool& changed);
  void decide();
  void work(int lane) noexcept override;
  void work_through(int lane);
  void run_piece(int piece);
  void note_error(int piece) noexcept OVERDRIVE_EXCLUDES(mutex_);
  void delay(int piece) const;
  void repeat_warnings() noexcept;

  const ReplayRun& run_;
  const int most_lanes_;
  const LaneTrial trial_;
  Phase phase_ = Phase::kTimes;
  // Why one lane, as a part of a sentence.
  const char* reason_ = "";
  Division division_;
  TimedPieces steps_;
  // Some steps in shares; null: none.
  std::unique_ptr<TimedPieces> shares_;
  int timed_ = 0;
  // What the schedule divides: the steps or the shares.
  const Pieces* pieces_ = nullptr;
  Schedule schedule_;
  double hand_over_ = 0;
  // Of the runs that were tried, in nanoseconds: the best on one lane, and on all.
  static constexpr double kNotTried = std::numeric_limits<double>::max();
  double best_of_one_ = kNotTried, best_of_lanes_ = kNotTried;
  int tried_ = 0;
  // When each turn began and ended in the shortest run that was noted.
  int noted_ = 0;
  TimedLanes seen_;
  double seen_whole_ = kNotTried;
  // Replays until the next trial, and how many there were between the last two.
  uint64_t rest_ = 0, last_rest_ = 0;

  // Of one run. Lanes are as many as the schedule's.
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool is_noted_ = false;
  std::chrono::steady_clock::time_point begin_;
  std::unique_ptr<Surroundings> surroundings_;
  uint64_t runs_ = 0;
  // Pieces behind it do not run any more: this one has thrown.
  std::atomic<int> last_piece_{0};
  std::atomic<bool> has_changed_{false};
  base::Mutex mutex_;
  // Of the first piece in order that has thrown.
  std::exception_ptr error_ OVERDRIVE_GUARDED_BY(mutex_);
  int thrown_by_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::replay
