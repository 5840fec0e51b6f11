#include "replay/lanes/steady_schedule.h"

#include "replay/lanes/timeline.h"

#include <algorithm>
#include <limits>
#include <random>

namespace overdrive::replay {

namespace {

// How much earlier a step must begin elsewhere to leave its chain's lane, in hand-overs. The first have fewer
// hand-overs, so a later one must end clearly earlier.
constexpr double kStays[]{64, 16, 4, 1, 0};
constexpr double kClearly = 0.99;
// Runs on paper in which steps take up to so much longer, each by its own share of it.
constexpr int kRuns = 4;
constexpr double kLonger = 0.5;

double end_with_delays(const Schedule& plan, const std::vector<double>& costs, double hand_over) {
  std::mt19937 random(1);
  double sum = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> longer = costs;
    for (double& cost : longer)
      cost *= 1 + kLonger * static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
    double end = 0;
    for (const std::vector<TimedTurn>& lane : predicted(plan, longer, hand_over)) {
      if (!lane.empty()) end = std::max(end, lane.back().end);
    }
    sum += end;
  }
  return sum / kRuns;
}

}  // namespace

Schedule steady_schedule(const StepsToSchedule& steps, int lanes, double hand_over) {
  Schedule best;
  double least = std::numeric_limits<double>::max();
  for (const double stay : kStays) {
    Schedule next = schedule(steps, lanes, hand_over, stay * hand_over);
    const double end = end_with_delays(next, steps.costs, hand_over);
    if (end >= kClearly * least) continue;
    least = end;
    best = std::move(next);
  }
  return best;
}

}  // namespace overdrive::replay
