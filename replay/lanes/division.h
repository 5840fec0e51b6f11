// Which steps of a replay lanes run in shares, and the proof that the shares have the bits of the whole.
// Functions; called by the thread that runs the replay. Knows no schedules.
#pragma once

#include "replay/lanes/pieces.h"

#include <vector>

namespace overdrive::replay {

// Of a share, in nanoseconds. Below, it costs about as much to begin it elsewhere.
constexpr double kLeastShare = 4000;

// Costs are of whole steps, in nanoseconds. A step gets as many shares as there are lanes, but none that costs
// less than `least_share`.
Division divided(const ReplayRun& run, const std::vector<double>& costs, int lanes, double least_share);
Division undivided(const ReplayRun& run);
size_t count_divided(const Division& division);

// Runs the step, then its shares from the same bytes, and tells whether both left the same bits. Afterwards
// everything is as after the step.
bool have_bits_of_the_whole(const ReplayRun& run, const ReplayStep& step, const std::vector<Share>& shares);

}  // namespace overdrive::replay
