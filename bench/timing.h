// Times of calls, so that all see the same machine. Pure functions but for the calls.
#pragma once

#include <functional>
#include <vector>

namespace overdrive::bench {

using Call = std::function<void()>;

double seconds_of(const Call& call);

// Rounds in which each call has a turn; who goes first alternates. A sample repeats its call until it lasts
// `sample_seconds`, and is the mean. Gives a list of seconds for each call.
std::vector<std::vector<double>> time_in_turns(const std::vector<Call>& calls, int rounds,
                                               double sample_seconds);

}  // namespace overdrive::bench
