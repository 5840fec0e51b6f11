// OVERDRIVE_RECORDINGS=FILE: a line for each recording that is ready for replays, with a digest of its program
// and of what the passes made of it. Equal programs have equal lines, in any process: no address is part of
// one. `make recordings` shows by it that a refactoring changed none. Any thread.
#pragma once

#include "replay/run/replay_run.h"

namespace overdrive::replay {

// Appends the line to the file, if the variable names one.
void list_recording(const ReplayRun& run);

}  // namespace overdrive::replay
