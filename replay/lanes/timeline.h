// When each turn of a schedule begins and ends, on paper or in a run, and why not earlier. Functions of a
// schedule and of times; any thread. Knows no operators.
#pragma once

#include "replay/lanes/schedule.h"

#include <vector>

namespace overdrive::replay {

// Times in nanoseconds since the call began.
struct TimedTurn {
  double begin = 0;
  double end = 0;
};
using TimedLanes = std::vector<std::vector<TimedTurn>>;

// A turn of a lane.
struct TurnPlace {
  int lane = -1;
  int turn = 0;
};

// The times that the costs of the steps foretell.
TimedLanes predicted(const Schedule& schedule, const std::vector<double>& costs, double hand_over);

// The turn of another lane that a turn awaited: the last one to end of those that ended, with a hand-over,
// after its lane was free. Its lane is -1 where there is none.
TurnPlace awaited_by(const Schedule& schedule, const TimedLanes& times, TurnPlace turn, double hand_over);

// The steps of the longest way through all of them, however many lanes there are; the first one first.
std::vector<int> longest_way(const StepsBefore& before, const std::vector<double>& costs);

// The turns without which the last lane would have ended earlier, the last one first: each is what the one
// before it in the list awaited, or the turn before that on its lane.
std::vector<TurnPlace> critical_path(const Schedule& schedule, const TimedLanes& times, double hand_over);

}  // namespace overdrive::replay
