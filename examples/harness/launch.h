// Starts this program again in several processes that train together, and sees them to their end. Called on the
// main thread of a process that does nothing else. Knows nothing of what they do.
#pragma once

#include <string>
#include <vector>

namespace overdrive::harness {

// Runs `overdrive ARGUMENTS --rank R --port P` for each rank, where P is a store that this process serves. Rank
// 0 speaks for all: the others are told to be quiet and to write nothing. Ctrl-C is passed on, and all stop
// after the same step. When one fails, the rest have 30 seconds to notice. Gives the exit status.
int launch(const std::vector<std::string>& arguments, int world);

// For those processes: end at once when the one that started this one is gone.
void end_with_parent();

}  // namespace overdrive::harness
