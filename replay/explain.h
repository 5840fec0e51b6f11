// A replay as text: its operators, their form, its memory. A function of its argument.
#pragma once

#include "replay/run/replay_run.h"

#include <ostream>

namespace overdrive::replay {

void explain_run(const ReplayRun& run, std::ostream& out);

}  // namespace overdrive::replay
