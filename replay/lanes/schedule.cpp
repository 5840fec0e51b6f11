#include "replay/lanes/schedule.h"

#include <algorithm>
#include <limits>

namespace overdrive::replay {

namespace {

constexpr double kNever = std::numeric_limits<double>::max();

// List scheduling: among the steps that can begin first, the one with the longest way to the end is next. A
// chain leaves its lane where a step of it begins earlier elsewhere by more than `stay`.
class Planner {
 public:
  Planner(const StepsToSchedule& steps, int lanes, double hand_over, double stay)
      : steps_(steps),
        count_(static_cast<int>(steps.costs.size())),
        hand_over_(hand_over),
        stay_(stay),
        after_(count_),
        missing_(count_),
        ways_(count_),
        begins_(count_, std::vector<double>(lanes)),
        places_(count_),
        ends_(count_),
        homes_(count_, -1),
        free_(lanes, hand_over),
        clocks_(count_),
        begun_(count_) {
    free_[0] = 0;  // the others hear of the call a hand-over later
    for (int i = 0; i < count_; ++i) {
      missing_[i] = steps.before[i].size();
      for (const int other : steps.before[i]) after_[other].push_back(i);
    }
    for (int i = count_; i-- > 0;) {
      for (const int other : after_[i]) ways_[i] = std::max(ways_[i], ways_[other]);
      ways_[i] += steps.costs[i];
    }
    result_.lanes.resize(lanes);
    known_.assign(lanes, std::vector<uint32_t>(lanes));
  }

  Schedule run() {
    for (int i = 0; i < count_; ++i) {
      result_.work += steps_.costs[i];
      result_.longest_way = std::max(result_.longest_way, ways_[i]);
      if (missing_[i] == 0) ready_.push_back(i);
    }
    while (!ready_.empty()) place_next();
    for (size_t lane = 0; lane < free_.size(); ++lane) {
      if (result_.lanes[lane].empty()) continue;
      result_.end = std::max(result_.end, free_[lane] + (lane > 0 ? hand_over_ : 0));
    }
    return std::move(result_);
  }

 private:
  struct Place {
    int lane;
    uint32_t turn;
  };
  struct Begin {
    int lane;
    double at;
  };

  // The lane of the step before it that ends last: its tensors are there. None: -1.
  int home_of(int step) const {
    int home = -1;
    double end = -1;
    for (const int other : steps_.before[step]) {
      if (ends_[other] <= end) continue;
      end = ends_[other];
      home = places_[other].lane;
    }
    return home;
  }

  // On the lane that can run it first, or at home.
  Begin first_begin(int step) const {
    const auto begin_on = [&](int lane) { return Begin{lane, std::max(free_[lane], begins_[step][lane])}; };
    if (steps_.on_caller[step]) return begin_on(0);
    const int home = homes_[step];
    Begin best = begin_on(std::max(home, 0));
    const double until = home < 0 ? best.at : best.at - stay_;
    double earliest = until;
    for (int lane = 0; lane < static_cast<int>(free_.size()); ++lane) {
      const Begin other = begin_on(lane);
      if (other.at >= earliest) continue;
      earliest = other.at;
      best = other;
    }
    return best;
  }

  void place_next() {
    double earliest = kNever;
    for (const int step : ready_) earliest = std::min(earliest, first_begin(step).at);
    size_t chosen = 0;
    Begin begin{0, kNever};
    for (size_t i = 0; i < ready_.size(); ++i) {
      const Begin at = first_begin(ready_[i]);
      if (at.at > earliest + hand_over_) continue;
      if (begin.at != kNever && ways_[ready_[i]] <= ways_[ready_[chosen]]) continue;
      chosen = i;
      begin = at;
    }
    const int step = ready_[chosen];
    ready_[chosen] = ready_.back();
    ready_.pop_back();
    put(step, begin);
  }

  void put(int step, const Begin& begin) {
    auto& turns = result_.lanes[begin.lane];
    places_[step] = {begin.lane, static_cast<uint32_t>(turns.size())};
    turns.push_back({step});
    add_waits(step, begin.lane);
    free_[begin.lane] = ends_[step] = begin.at + steps_.costs[step];
    for (const int other : after_[step]) {
      for (int lane = 0; lane < static_cast<int>(free_.size()); ++lane) {
        double& at = begins_[other][lane];
        at = std::max(at, free_[begin.lane] + (lane == begin.lane ? 0 : hand_over_));
      }
      if (--missing_[other] > 0) continue;
      homes_[other] = home_of(other);
      ready_.push_back(other);
    }
  }

  // A lane that has waited for a turn knows what the other lane knew by then. The later turns are looked at
  // first, because they may imply the earlier ones.
  void add_waits(int step, int lane) {
    std::vector<uint32_t>& known = known_[lane];
    std::vector<int> others = steps_.before[step];
    std::sort(others.begin(), others.end(), [&](int a, int b) { return begun_[a] > begun_[b]; });
    auto& waits = result_.lanes[lane].back().waits;
    for (const int other : others) {
      const auto [at, turn] = places_[other];
      if (at == lane || known[at] > turn) continue;
      waits.push_back({at, turn + 1});
      result_.lanes[at][turn].is_awaited = true;
      ++result_.hand_overs;
      for (size_t i = 0; i < known.size(); ++i) known[i] = std::max(known[i], clocks_[other][i]);
    }
    known[lane] = places_[step].turn + 1;
    clocks_[step] = known;
    begun_[step] = ++number_;
  }

  const StepsToSchedule& steps_;
  const int count_;
  const double hand_over_, stay_;
  StepsBefore after_;
  // Of each step: those before it that have no place yet, and the time from its begin to the end of everything
  // that waits for it.
  std::vector<size_t> missing_;
  std::vector<double> ways_;
  // Of each step and each lane: when the steps before it are over there.
  std::vector<std::vector<double>> begins_;
  std::vector<Place> places_;
  std::vector<double> ends_;
  // Where a step stays that can begin.
  std::vector<int> homes_;
  std::vector<double> free_;
  std::vector<int> ready_;
  // Of each lane, and of each step at its end: so many turns of each lane are over.
  std::vector<std::vector<uint32_t>> known_, clocks_;
  // In which order the steps got their places.
  std::vector<uint32_t> begun_;
  uint32_t number_ = 0;
  Schedule result_;
};

}  // namespace

Schedule schedule(const StepsToSchedule& steps, int lanes, double hand_over, double stay) {
  return Planner(steps, lanes, hand_over, stay).run();
}

}  // namespace overdrive::replay
