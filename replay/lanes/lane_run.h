// The steps of a replay on several lanes: the calling thread and threads of the pool. Owned by its ReplayRun,
// called by one thread at a time. First times the steps, then divides the large ones and times their shares,
// then makes the schedule, then tries whether it is faster. Knows nothing of recordings and guards.
#pragma once

#include "engine/base/mutex.h"
#include "replay/lanes/division.h"
#include "replay/lanes/lane_threads.h"
#include "replay/lanes/lane_trial.h"
#include "replay/lanes/pieces.h"
#include "replay/lanes/schedule.h"
#include "replay/run/replay_run.h"

#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <vector>

namespace overdrive::replay {

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

 private:
  enum class Phase : uint8_t { kTimes, kProves, kTimesShares, kPlans, kTries, kLanes, kOneLane };
  // What decides a kernel's bits, and belongs to a thread.
  struct Surroundings;
  // What another thread wrote last lies in a cache line of its own.
  struct Lane {
    Signal turns;
    std::vector<c10::Warning> warnings;
  };

  // Pieces of all steps, and the least that each has taken in nanoseconds.
  struct Timed {
    Pieces pieces;
    std::vector<double> costs;
  };

  void set_made_up_costs(std::vector<double>& costs) const;
  void divide();
  // A run on one lane on the way to a schedule. False: it is time to make one.
  bool prepare(size_t& done);
  void prove_shares(size_t& done);
  Schedule best_schedule(const Timed& timed) const;
  void make_schedule();
  void stay_on_one_lane(const char* reason);

  // `costs`: null: nobody asks.
  void run_alone(const Pieces& pieces, size_t& done, std::vector<double>* costs) const;
  void run_on_lanes(LaneLease& lease, size_t& done, bool& changed);
  void run_tried(LaneLease& lease, size_t& done, bool& changed);
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
  Timed steps_;
  // Some steps in shares; null: none.
  std::unique_ptr<Timed> shares_;
  int timed_ = 0;
  // What the schedule divides: the steps or the shares.
  const Pieces* pieces_ = nullptr;
  Schedule schedule_;
  double hand_over_ = 0;
  // Of the runs that were tried, in nanoseconds: the best on one lane, and on all.
  static constexpr double kNotTried = std::numeric_limits<double>::max();
  double best_of_one_ = kNotTried, best_of_lanes_ = kNotTried;
  int tried_ = 0;
  // Replays until the next trial, and how many there were between the last two.
  uint64_t rest_ = 0, last_rest_ = 0;

  // Of one run. Lanes are as many as the schedule's.
  std::vector<std::unique_ptr<Lane>> lanes_;
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
