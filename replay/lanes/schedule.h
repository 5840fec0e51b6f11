// Which lane runs which step of a replay, in which order, and where it waits for another lane. A function of
// costs and of who must wait for whom; any thread. Knows no operators and no threads, and runs nothing.
#pragma once

#include "replay/plan/dependencies.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace overdrive::replay {

struct StepsToSchedule {
  StepsBefore before;
  // Of each step, in nanoseconds.
  std::vector<double> costs;
  // Steps of the calling thread, which is lane 0.
  std::vector<bool> on_caller;
};

struct Schedule {
  // Until a lane has ended so many turns.
  struct Wait {
    int lane;
    uint32_t turns;
  };
  struct Turn {
    int step;
    // Of other lanes, each at most once: those that an earlier wait of the lane does not imply.
    std::vector<Wait> waits = {};
    // Whether another lane waits for it.
    bool is_awaited = false;
  };
  std::vector<std::vector<Turn>> lanes;
  // All in nanoseconds, as the costs foretell: the steps one after the other, the longest way through them, and
  // the end of the last lane.
  double work = 0;
  double longest_way = 0;
  double end = 0;
  size_t hand_overs = 0;

  double gain() const { return end > 0 ? work / end : 1; }
};

// `hand_over`: nanoseconds from the end of a step to the begin of one that waits for it on another lane.
// `stay`: by how much earlier a step must begin elsewhere to leave the lane of the step before it.
Schedule schedule(const StepsToSchedule& steps, int lanes, double hand_over, double stay = 0);

}  // namespace overdrive::replay
