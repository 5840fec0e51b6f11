// Who waits for whom, which lane runs what, and where steps are cut: pure functions, on random programs.
#include "replay/bind/share.h"
#include "replay/lanes/schedule.h"
#include "replay/lanes/steady_schedule.h"
#include "replay/lanes/timeline.h"
#include "replay/plan/dependencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace overdrive::replay {
namespace {

bool meet(const std::vector<AddressRange>& a, const std::vector<AddressRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const AddressRange& x) {
    return std::any_of(b.begin(), b.end(), [&](const AddressRange& y) {
      return std::max(x.begin, y.begin) < std::min(x.end, y.end);
    });
  });
}

bool keep_their_order(const Touched& a, const Touched& b) {
  return a.alone || b.alone || meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes);
}

// Of each step: all that come before it, also by way of others.
std::vector<std::set<int>> all_before(const StepsBefore& before) {
  std::vector<std::set<int>> all(before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    for (const int other : before[i]) {
      all[i].insert(other);
      all[i].insert(all[other].begin(), all[other].end());
    }
  }
  return all;
}

std::vector<Touched> random_steps(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<Touched> steps(5 + below(40));
  for (Touched& step : steps) {
    const auto range = [&] {
      const uintptr_t begin = 100 + below(30);
      return AddressRange{begin, begin + below(5)};  // empty ones, too
    };
    for (int i = below(4); i > 0; --i) step.reads.push_back(range());
    for (int i = below(3); i > 0; --i) step.writes.push_back(range());
    step.alone = below(20) == 0;
  }
  return steps;
}

TEST(StepsBefore, AreThoseThatTouchTheSameBytes) {
  // 0 writes a · 1 reads a · 2 reads a · 3 writes a piece of a · 4 reads another piece of a
  const StepsBefore before = steps_before({{.writes = {{10, 20}}},
                                           {.reads = {{10, 20}}},
                                           {.reads = {{10, 20}}},
                                           {.writes = {{10, 12}}},
                                           {.reads = {{12, 20}}}});
  EXPECT_EQ(before, (StepsBefore{{}, {0}, {0}, {0, 1, 2}, {0}}));
}

TEST(StepsBefore, AnUnknownStepIsAlone) {
  const StepsBefore before =
      steps_before({{.writes = {{1, 2}}}, {.writes = {{3, 4}}}, {.alone = true}, {.reads = {{5, 6}}}});
  EXPECT_EQ(before, (StepsBefore{{}, {}, {0, 1}, {2}}));
}

TEST(StepsBefore, KeepEveryOrderThatMattersAndNoOther) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Touched> steps = random_steps(random);
    const StepsBefore before = steps_before(steps);
    const auto all = all_before(before);
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      for (int k = 0; k < i; ++k) {
        if (keep_their_order(steps[k], steps[i])) {
          ASSERT_TRUE(all[i].contains(k)) << "seed " << seed << ": " << i << " does not wait for " << k;
        }
      }
      for (const int k : before[i])
        ASSERT_TRUE(keep_their_order(steps[k], steps[i])) << "seed " << seed << ": " << i << " waits for " << k;
    }
  }
}

// Runs a schedule: a lane goes on when its waits are over. Checks that every step finds those before it ended,
// by what its lane has waited for and not by chance: a lane knows what it has waited for, and what those lanes
// knew.
void check(const StepsToSchedule& steps, const Schedule& plan, unsigned seed) {
  const size_t lanes = plan.lanes.size();
  std::vector<size_t> at(lanes);
  std::vector<std::set<int>> knows(lanes);
  std::vector<std::vector<std::set<int>>> known_after(lanes);
  size_t ended = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (at[lane] == plan.lanes[lane].size()) continue;
      const Schedule::Turn& turn = plan.lanes[lane][at[lane]];
      const bool may_go = std::all_of(turn.waits.begin(), turn.waits.end(), [&](const Schedule::Wait& wait) {
        return known_after[wait.lane].size() >= wait.turns;
      });
      if (!may_go) continue;
      for (const Schedule::Wait& wait : turn.waits) {
        ASSERT_TRUE(plan.lanes[wait.lane][wait.turns - 1].is_awaited) << "seed " << seed;
        const auto& other = known_after[wait.lane][wait.turns - 1];
        knows[lane].insert(other.begin(), other.end());
      }
      for (const int before : steps.before[turn.step])
        ASSERT_TRUE(knows[lane].contains(before)) << "seed " << seed << ": " << turn.step << ", " << before;
      if (steps.on_caller[turn.step]) {
        ASSERT_EQ(lane, 0U) << "seed " << seed;
      }
      ASSERT_TRUE(knows[lane].insert(turn.step).second);
      known_after[lane].push_back(knows[lane]);
      ++at[lane];
      ++ended;
      moved = true;
    }
  }
  ASSERT_EQ(ended, steps.costs.size()) << "seed " << seed << ": lanes wait for each other";
}

TEST(LaneSchedule, EachStepWaitsForThoseBeforeIt) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Touched> touched = random_steps(random);
    StepsToSchedule steps;
    steps.before = steps_before(touched);
    for (const Touched& step : touched) {
      steps.costs.push_back(1 + random() % 100);
      steps.on_caller.push_back(step.alone);
    }
    for (const int lanes : {1, 2, 3, 4, 8}) {
      const double hand_over = random() % 50;
      for (const Schedule& plan :
           {schedule(steps, lanes, hand_over), schedule(steps, lanes, hand_over, random() % 200),
            steady_schedule(steps, lanes, hand_over)}) {
        ASSERT_EQ(plan.lanes.size(), static_cast<size_t>(lanes));
        check(steps, plan, seed);
        ASSERT_GE(plan.end + 1e-6, plan.longest_way) << "seed " << seed;
      }
      if (HasFatalFailure()) return;
    }
  }
}

// {0} -> {2} -> {4} ...
// {1} -> {3} -> {5} ...
TEST(LaneSchedule, TwoChainsRunOnTwoLanes) {
  StepsToSchedule steps;
  for (int i = 0; i < 40; ++i) {
    steps.before.push_back(i < 2 ? std::vector<int>{} : std::vector<int>{i - 2});
    steps.costs.push_back(1000);
    steps.on_caller.push_back(false);
  }
  const Schedule plan = schedule(steps, 2, 100);
  EXPECT_EQ(plan.hand_overs, 0U);
  EXPECT_EQ(plan.lanes[0].size(), 20U);
  EXPECT_GT(plan.gain(), 1.9);
  EXPECT_EQ(plan.work, 40'000);
  EXPECT_EQ(plan.longest_way, 20'000);
}

// Eight chains of the same length, on two lanes: each stays where it began, though a step of it could begin a
// little earlier elsewhere.
TEST(LaneSchedule, WholeChainsStayOnTheirLanes) {
  StepsToSchedule steps;
  for (int i = 0; i < 160; ++i) {
    steps.before.push_back(i < 8 ? std::vector<int>{} : std::vector<int>{i - 8});
    steps.costs.push_back(1000 + i * 37 % 400);
    steps.on_caller.push_back(false);
  }
  const Schedule plan = steady_schedule(steps, 2, 100);
  EXPECT_EQ(plan.hand_overs, 0U);
  EXPECT_GT(plan.gain(), 1.9);
  EXPECT_GT(schedule(steps, 2, 100).hand_overs, 8U);
}

TEST(LaneSchedule, AChainStaysOnTheCallersLane) {
  StepsToSchedule steps;
  for (int i = 0; i < 20; ++i) {
    steps.before.push_back(i == 0 ? std::vector<int>{} : std::vector<int>{i - 1});
    steps.costs.push_back(1000);
    steps.on_caller.push_back(false);
  }
  const Schedule plan = schedule(steps, 4, 100);
  EXPECT_EQ(plan.lanes[0].size(), 20U);
  EXPECT_EQ(plan.gain(), 1);
}

TEST(LaneSchedule, StepsThatCostLessThanAHandOverStayTogether) {
  StepsToSchedule steps;
  for (int i = 0; i < 10; ++i) {
    steps.before.push_back(i == 0 ? std::vector<int>{} : std::vector<int>{0});
    steps.costs.push_back(10);
    steps.on_caller.push_back(false);
  }
  EXPECT_EQ(schedule(steps, 2, 1000).lanes[1].size(), 0U);
}

// What a page draws: the planner's own times, a path without gaps but hand-overs, and a way of the planner's
// length.
TEST(LaneTimes, AreThosePlannedAndTheirPathIsWhole) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Touched> touched = random_steps(random);
    StepsToSchedule steps{.before = steps_before(touched), .costs = {}, .on_caller = {}};
    for (const Touched& step : touched) {
      steps.costs.push_back(1 + random() % 100);
      steps.on_caller.push_back(step.alone);
    }
    for (const int lanes : {2, 3, 8}) {
      const double hand_over = random() % 50;
      const Schedule plan = schedule(steps, lanes, hand_over);
      const TimedLanes times = predicted(plan, steps.costs, hand_over);
      double end = 0;
      for (size_t lane = 0; lane < times.size(); ++lane) {
        ASSERT_EQ(times[lane].size(), plan.lanes[lane].size());
        if (!times[lane].empty()) end = std::max(end, times[lane].back().end + (lane > 0 ? hand_over : 0));
      }
      ASSERT_DOUBLE_EQ(end, plan.end) << "seed " << seed;
      double length = 0;
      for (const int step : longest_way(steps.before, steps.costs)) length += steps.costs[step];
      ASSERT_DOUBLE_EQ(length, plan.longest_way) << "seed " << seed;
      const std::vector<TurnPlace> path = critical_path(plan, times, hand_over);
      const auto time_of = [&](TurnPlace turn) { return times[turn.lane][turn.turn]; };
      ASSERT_LE(time_of(path.back()).begin, hand_over) << "seed " << seed;
      for (size_t i = 0; i + 1 < path.size(); ++i) {
        const double gap = time_of(path[i]).begin - time_of(path[i + 1]).end;
        ASSERT_DOUBLE_EQ(gap, path[i].lane == path[i + 1].lane ? 0 : hand_over) << "seed " << seed;
      }
    }
  }
}

// {0: 10} -> {1: 20}, {0} -> {2: 50}: the short one runs on lane 1, which hears of 0 five later.
TEST(LaneTimes, SayWhatATurnAwaited) {
  const StepsToSchedule steps{
      .before = {{}, {0}, {0}}, .costs = {10, 20, 50}, .on_caller = {true, false, false}};
  const Schedule plan = schedule(steps, 2, 5);
  ASSERT_EQ(plan.lanes[1].size(), 1U);
  const TimedLanes times = predicted(plan, steps.costs, 5);
  EXPECT_EQ(times[1][0].begin, 15);
  EXPECT_EQ(times[1][0].end, 35);
  EXPECT_EQ(awaited_by(plan, times, {1, 0}, 5).lane, 0);
  EXPECT_EQ(awaited_by(plan, times, {1, 0}, 5).turn, 0);
  EXPECT_EQ(awaited_by(plan, times, {0, 1}, 5).lane, -1);
  const std::vector<TurnPlace> path = critical_path(plan, times, 5);
  ASSERT_EQ(path.size(), 2U);
  EXPECT_EQ(path[0].lane, 0);
  EXPECT_EQ(path[0].turn, 1);
  EXPECT_EQ(longest_way(steps.before, steps.costs), (std::vector<int>{0, 2}));
}

TEST(Shares, AreCutAtWholeGrains) {
  EXPECT_EQ(share_bounds(1000, 64, 3), (std::vector<int64_t>{0, 320, 640, 1000}));
  EXPECT_EQ(share_bounds(130, 64, 4), (std::vector<int64_t>{0, 64, 128, 130}));
  EXPECT_EQ(share_bounds(64, 64, 4), (std::vector<int64_t>{0, 64}));
  EXPECT_EQ(share_bounds(5, 1, 2), (std::vector<int64_t>{0, 2, 5}));
}

TEST(Shares, AreApartUnlessOneTouchesWhatAnotherWrites) {
  const auto share = [](std::vector<AddressRange> reads, AddressRange writes) {
    return Share{step_of([] {}), {.reads = std::move(reads), .writes = {writes}}};
  };
  const auto two = [&](const AddressRange& read, const AddressRange& written) {
    std::vector<Share> shares;
    shares.push_back(share({{100, 200}}, {200, 300}));
    shares.push_back(share({read}, written));
    return are_apart(shares);
  };
  EXPECT_TRUE(two({100, 200}, {300, 400}));
  EXPECT_FALSE(two({299, 310}, {300, 400}));
  EXPECT_FALSE(two({100, 200}, {299, 400}));
  EXPECT_FALSE(two({100, 200}, {199, 200}));
}

TEST(Shares, KnowTheFirstAndTheLastByteOfRowsInEitherDirection) {
  const int64_t sizes[]{3, 4}, down[]{-40, 8};
  const auto begin = uintptr_t{1000};
  const AddressRange range = hull(reinterpret_cast<void*>(begin), sizes, down, 2, 8);
  EXPECT_EQ(range.begin, 920U);
  EXPECT_EQ(range.end, 1032U);
}

}  // namespace
}  // namespace overdrive::replay
