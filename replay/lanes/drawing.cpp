#include "replay/lanes/drawing.h"

#include "engine/base/json_text.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace overdrive::replay {

namespace {

using base::json_list;

std::string microseconds(double nanoseconds) { return base::json_number(std::round(nanoseconds / 10) / 100); }

// "aten::mm [16, 256]": the operator and the sizes of its first result.
std::string name_of(const ReplayRun& run, const ReplayStep& step) {
  if (step.fills) return "numbers of the program";
  const Operator& op = run.program().operators[step.op];
  std::string name = op.name;
  for (const Argument& result : op.out) {
    if (!result.is_tensor() || result.values[0] < 0) continue;
    const c10::DimVector& sizes = run.program().values[result.values[0]].sizes;
    return name + " " + json_list(sizes, [](int64_t size) { return std::to_string(size); });
  }
  return name;
}

// What a plan has of each piece of a step: "1 of 2" where the step is in shares.
struct PlaceInStep {
  int number = 0;
  int of = 0;
};

std::vector<PlaceInStep> places_in_steps(const Pieces& pieces) {
  std::vector<PlaceInStep> places(pieces.size());
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i;
    while (end < pieces.size() && pieces[end].step == pieces[i].step) ++end;
    for (size_t k = i; k < end; ++k) places[k] = {static_cast<int>(k - i), static_cast<int>(end - i)};
    i = end;
  }
  return places;
}

// Numbers of one turn, as inspect/page/lanes.js reads them: step, share, shares, begin, end, marks (1: on the
// critical path, 2: on the longest way), lane and turn that it awaited.
class TurnTexts {
 public:
  explicit TurnTexts(const LanesDrawing::Plan& plan)
      : plan_(plan), places_(places_in_steps(plan.timed.pieces)), marks_(plan.timed.pieces.size()) {
    for (const TurnPlace& turn : critical_path(plan.schedule, plan.times, plan.hand_over))
      marks_[plan.schedule.lanes[turn.lane][turn.turn].step] |= 1;
    for (const int piece : longest_way(*plan.timed.pieces.before(), plan.timed.costs)) marks_[piece] |= 2;
  }

  std::string of_lane(int lane) const {
    std::string text = "[";
    for (int i = 0; i < static_cast<int>(plan_.schedule.lanes[lane].size()); ++i) {
      if (i > 0) text += ",";
      text += of_turn({lane, i});
    }
    return text + "]";
  }

 private:
  std::string of_turn(TurnPlace turn) const {
    const int piece = plan_.schedule.lanes[turn.lane][turn.turn].step;
    const TimedTurn& time = plan_.times[turn.lane][turn.turn];
    const TurnPlace awaited = awaited_by(plan_.schedule, plan_.times, turn, plan_.hand_over);
    return c10::str("[", plan_.timed.pieces[piece].step, ",", places_[piece].number, ",", places_[piece].of,
                    ",", microseconds(time.begin), ",", microseconds(time.end), ",", marks_[piece], ",",
                    awaited.lane, ",", awaited.turn, "]");
  }

  const LanesDrawing::Plan& plan_;
  const std::vector<PlaceInStep> places_;
  std::vector<int> marks_;
};

}  // namespace

void LanesDrawing::add(const Plan& plan) {
  static constexpr const char* kKinds[]{"seen", "foretold", "simulated"};
  const TurnTexts texts(plan);
  std::string lanes;
  for (int lane = 0; lane < static_cast<int>(plan.schedule.lanes.size()); ++lane)
    lanes += (lane ? ",\n" : "") + texts.of_lane(lane);
  plans_ +=
      c10::str(plans_.empty() ? "" : ",\n", R"({"kind": ")", kKinds[static_cast<size_t>(plan.kind)],
               R"(", "whole_us": )", microseconds(plan.whole), R"(, "work_us": )", microseconds(plan.work),
               R"(, "longest_way_us": )", microseconds(plan.schedule.longest_way), R"(, "hand_overs": )",
               plan.schedule.hand_overs, ", \"lanes\": [\n", lanes, "]}");
}

std::string LanesDrawing::to_json() const {
  std::vector<std::string> names;
  std::unordered_map<std::string, size_t> numbers;
  const auto number_of = [&](const ReplayStep& step) {
    const auto [known, is_new] = numbers.try_emplace(name_of(run_, step), names.size());
    if (is_new) names.push_back(known->first);
    return std::to_string(known->second);
  };
  const std::string steps = json_list(run_.steps(), number_of, ",");
  return c10::str(R"({"told": )", base::json_quoted(told_),
                  ",\n\"names\": ", json_list(names, base::json_quoted), ",\n\"steps\": ", steps,
                  ",\n\"plans\": [", plans_, "]}");
}

}  // namespace overdrive::replay
