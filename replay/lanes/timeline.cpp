#include "replay/lanes/timeline.h"

#include <algorithm>

namespace overdrive::replay {

// Lanes in turn, each as far as it comes: a schedule has an order in which every wait ends.
TimedLanes predicted(const Schedule& schedule, const std::vector<double>& costs, double hand_over) {
  const size_t count = schedule.lanes.size();
  TimedLanes times(count);
  const auto has_ended = [&](const Schedule::Wait& wait) { return times[wait.lane].size() >= wait.turns; };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t lane = 0; lane < count; ++lane) {
      const std::vector<Schedule::Turn>& turns = schedule.lanes[lane];
      std::vector<TimedTurn>& own = times[lane];
      while (own.size() < turns.size()) {
        const Schedule::Turn& turn = turns[own.size()];
        if (!std::all_of(turn.waits.begin(), turn.waits.end(), has_ended)) break;
        double begin = own.empty() ? (lane > 0 ? hand_over : 0) : own.back().end;
        for (const Schedule::Wait& wait : turn.waits)
          begin = std::max(begin, times[wait.lane][wait.turns - 1].end + hand_over);
        own.push_back({begin, begin + costs[turn.step]});
        moves = true;
      }
    }
  }
  return times;
}

TurnPlace awaited_by(const Schedule& schedule, const TimedLanes& times, TurnPlace turn, double hand_over) {
  double free = (turn.turn > 0 ? times[turn.lane][turn.turn - 1].end : 0) - hand_over;
  TurnPlace result;
  for (const Schedule::Wait& wait : schedule.lanes[turn.lane][turn.turn].waits) {
    const int last = static_cast<int>(wait.turns) - 1;
    const double end = times[wait.lane][last].end;
    if (end <= free) continue;
    free = end;
    result = {wait.lane, last};
  }
  return result;
}

std::vector<int> longest_way(const StepsBefore& before, const std::vector<double>& costs) {
  std::vector<double> ends(costs.size());
  std::vector<int> last(costs.size(), -1);
  int at = -1;
  for (int i = 0; i < static_cast<int>(costs.size()); ++i) {
    for (const int other : before[i]) {
      if (ends[other] <= ends[i]) continue;
      ends[i] = ends[other];
      last[i] = other;
    }
    ends[i] += costs[i];
    if (at < 0 || ends[i] > ends[at]) at = i;
  }
  std::vector<int> way;
  for (; at >= 0; at = last[at]) way.push_back(at);
  std::reverse(way.begin(), way.end());
  return way;
}

std::vector<TurnPlace> critical_path(const Schedule& schedule, const TimedLanes& times, double hand_over) {
  TurnPlace at;
  double end = 0;
  for (size_t lane = 0; lane < times.size(); ++lane) {
    if (times[lane].empty() || times[lane].back().end <= end) continue;
    end = times[lane].back().end;
    at = {static_cast<int>(lane), static_cast<int>(times[lane].size()) - 1};
  }
  std::vector<TurnPlace> path;
  while (at.lane >= 0 && at.turn >= 0) {
    path.push_back(at);
    const TurnPlace awaited = awaited_by(schedule, times, at, hand_over);
    at = awaited.lane >= 0 ? awaited : TurnPlace{at.lane, at.turn - 1};
  }
  return path;
}

}  // namespace overdrive::replay
