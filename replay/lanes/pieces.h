// What lanes run: the steps of a replay, some of them in shares, and which piece must wait for which. A value,
// owned by its LaneRun; the ReplayRun and the division outlive it. Pieces know no lanes and no costs.
#pragma once

#include "replay/bind/share.h"
#include "replay/lanes/schedule.h"
#include "replay/run/replay_run.h"

#include <vector>

namespace overdrive::replay {

// Of each step of a run: its shares; none where it stays whole.
using Division = std::vector<std::vector<Share>>;

struct Piece {
  // Its place in the run.
  int step;
  // The whole step, or a share of it.
  const Step* work;
  Touched touched = {};
  // Whether it changes what a run that throws could not put back.
  bool changes_unsaved = false;
};

class Pieces {
 public:
  Pieces(const ReplayRun& run, const Division& division);

  size_t size() const { return pieces_.size(); }
  const Piece& operator[](size_t i) const { return pieces_[i]; }
  // Which pieces must end before each one begins; none where too many pairs may throw before others.
  const std::optional<StepsBefore>& before() const { return before_; }

 private:
  void add(const ReplayRun& run, int step, const std::vector<Share>& shares);
  void find_steps_before();

  std::vector<Piece> pieces_;
  // Pieces that may throw, on their data or because there is no memory, and pieces that then must not have
  // begun.
  std::vector<int> may_throw_, changing_;
  std::optional<StepsBefore> before_;
};

// Pieces of all steps, and the least that each has taken in nanoseconds.
struct TimedPieces {
  Pieces pieces;
  std::vector<double> costs;

  // Where before() is known.
  StepsToSchedule to_schedule() const;
};

}  // namespace overdrive::replay
