#include "replay/lanes/division.h"

#include "replay/bind/snapshot.h"
#include "replay/passes/step_accesses.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

// A machine may have more lanes than a step has work for.
constexpr int kMostShares = 16;

}  // namespace

Division undivided(const ReplayRun& run) {
  Division division;
  division.resize(run.steps().size());
  return division;
}

Division divided(const ReplayRun& run, const std::vector<double>& costs, int lanes, double least_share) {
  Division division = undivided(run);
  for (size_t i = 0; i < division.size(); ++i) {
    const ReplayStep& step = run.steps()[i];
    const double count = std::min<double>(std::min(lanes, kMostShares), costs[i] / least_share);
    if (step.fills || count < 2 || accesses_of(run.program(), step.op).is_foreign) continue;
    std::vector<Share> shares = step.step.state().shares(static_cast<int>(count));
    if (shares.size() > 1 && are_apart(shares)) division[i] = std::move(shares);
  }
  return division;
}

size_t count_divided(const Division& division) {
  return std::count_if(division.begin(), division.end(), [](const auto& shares) { return !shares.empty(); });
}

bool have_bits_of_the_whole(const ReplayRun& run, const ReplayStep& step, const std::vector<Share>& shares) {
  Snapshot before;
  for (const int memory : accesses_of(run.program(), step.op).writes)
    before.add(run.bound().storage(memory).unsafeGetStorageImpl());
  step.step();
  const Snapshot whole = before.now();
  before.restore();
  for (const Share& share : shares) share.step();
  if (whole.differences().empty()) return true;
  whole.restore();
  return false;
}

}  // namespace overdrive::replay
