// What a LaneRun tells of itself: a line of text, and JSON for a page.
#include "replay/lanes/drawing.h"
#include "replay/lanes/lane_run.h"
#include "replay/lanes/steady_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <sstream>

namespace overdrive::replay {

namespace {

// Lanes for which a schedule is drawn, whether or not there are processors for them.
constexpr std::array<int, 3> kSimulatedLanes{2, 4, 8};

}  // namespace

void LaneRun::explain(std::ostream& out) const {
  const auto us = [](double nanoseconds) { return std::round(nanoseconds / 10) / 100; };
  out << "lanes: ";
  if (phase_ == Phase::kOneLane) {
    out << "1, because " << reason_;
  } else if (phase_ < Phase::kTries) {
    out << "1, while the steps are timed";
  } else {
    out << schedule_.lanes.size() << (phase_ == Phase::kTries ? ", being tried" : "");
  }
  if (!schedule_.lanes.empty()) {
    out << "; " << schedule_.lanes.size() << " lanes: " << us(schedule_.end) << " us expected for "
        << us(schedule_.work) << " us of work (gain " << std::round(100 * schedule_.gain()) / 100
        << ", longest way " << us(schedule_.longest_way) << " us), " << schedule_.hand_overs
        << " hand-overs of " << us(hand_over_) << " us, steps";
    for (const auto& lane : schedule_.lanes) out << " " << lane.size();
    if (shares_ && pieces_ == &shares_->pieces)
      out << "; " << count_divided(division_) << " steps are divided, into "
          << shares_->pieces.size() - steps_.pieces.size() + count_divided(division_) << " shares";
    if (best_of_lanes_ < kNotTried && best_of_one_ < kNotTried)
      out << "; tried: " << us(best_of_lanes_) << " us, on one lane " << us(best_of_one_) << " us";
  }
  out << "\n";
}

// Shares for so many lanes, of the steps whose shares had the bits of the whole. They cost together what the
// shares of now cost together.
TimedPieces LaneRun::shares_for(int lanes, Division& division) const {
  division = divided(run_, steps_.costs, lanes, kLeastShare);
  std::vector<double> measured(run_.steps().size());
  for (size_t i = 0; shares_ && i < shares_->pieces.size(); ++i)
    measured[shares_->pieces[i].step] += shares_->costs[i];
  for (size_t i = 0; i < division.size(); ++i) {
    if (division_[i].empty()) division[i].clear();
  }
  TimedPieces timed{Pieces(run_, division), {}};
  for (size_t i = 0; i < timed.pieces.size(); ++i) {
    const int step = timed.pieces[i].step;
    const size_t count = std::max<size_t>(division[step].size(), 1);
    timed.costs.push_back(count > 1 ? measured[step] / static_cast<double>(count) : steps_.costs[step]);
  }
  return timed;
}

void LaneRun::draw_simulated(LanesDrawing& drawing, int lanes) const {
  const double hand_over = hand_over_and_moves();
  const TimedPieces* timed = &steps_;
  Schedule best = steady_schedule(steps_.to_schedule(), lanes, hand_over);
  Division division;
  std::optional<TimedPieces> shares;
  if (shares_) {
    shares.emplace(shares_for(lanes, division));
    if (shares->pieces.before()) {
      Schedule with_shares = steady_schedule(shares->to_schedule(), lanes, hand_over);
      if (is_better(with_shares, best)) {
        best = std::move(with_shares);
        timed = &*shares;
      }
    }
  }
  drawing.add({LanesDrawing::Kind::kSimulated, *timed, best, predicted(best, timed->costs, hand_over), best.end,
               work(), hand_over});
}

std::string LaneRun::to_json() const {
  std::ostringstream told;
  explain(told);
  LanesDrawing drawing(run_, told.str().substr(0, told.str().size() - 1));
  const bool is_timed =
      std::all_of(steps_.costs.begin(), steps_.costs.end(), [](double cost) { return cost < kNotTried; });
  if (!is_timed || !steps_.pieces.before()) return drawing.to_json();
  if (!schedule_.lanes.empty()) {
    const TimedPieces& timed = pieces_ == &steps_.pieces ? steps_ : *shares_;
    if (!seen_.empty())
      drawing.add({LanesDrawing::Kind::kSeen, timed, schedule_, seen_, seen_whole_, work(), hand_over_});
    const double hand_over = hand_over_and_moves();
    drawing.add({LanesDrawing::Kind::kForetold, timed, schedule_, predicted(schedule_, timed.costs, hand_over),
                 schedule_.end, work(), hand_over});
  }
  for (const int lanes : kSimulatedLanes) {
    if (static_cast<int>(schedule_.lanes.size()) != lanes) draw_simulated(drawing, lanes);
  }
  return drawing.to_json();
}

}  // namespace overdrive::replay
