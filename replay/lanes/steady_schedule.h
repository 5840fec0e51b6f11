// Of several schedules, the one that ends first where steps take longer than they were measured: each wait of a
// lane for another is one for whatever delays that one. A function; any thread.
#pragma once

#include "replay/lanes/schedule.h"

namespace overdrive::replay {

Schedule steady_schedule(const StepsToSchedule& steps, int lanes, double hand_over);

}  // namespace overdrive::replay
