// Lanes of a replay as JSON, for a page that draws them (inspect/page/lanes.js). Owned by its caller, one
// thread. Knows neither how schedules are made nor how they run.
#pragma once

#include "replay/lanes/pieces.h"
#include "replay/lanes/schedule.h"
#include "replay/lanes/timeline.h"

#include <string>

namespace overdrive::replay {

class LanesDrawing {
 public:
  // `told`: the lanes as a line of text.
  LanesDrawing(const ReplayRun& run, std::string told) : run_(run), told_(std::move(told)) {}

  enum class Kind : uint8_t { kSeen, kForetold, kSimulated };
  struct Plan {
    Kind kind;
    const TimedPieces& timed;
    const Schedule& schedule;
    TimedLanes times;
    // In nanoseconds: from the begin of the call to the end of all lanes, of all steps on one lane, and from
    // the end of a turn to the begin of one that awaits it.
    double whole;
    double work;
    double hand_over;
  };
  void add(const Plan& plan);

  std::string to_json() const;

 private:
  const ReplayRun& run_;
  const std::string told_;
  std::string plans_;
};

}  // namespace overdrive::replay
