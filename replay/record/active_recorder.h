// The recorder of a thread, for those that need to know no more of it than that it is there.
#pragma once

namespace overdrive::replay {

class Recorder;

// Null where nothing is recorded.
Recorder* active_recorder();
// Returns the one before.
Recorder* exchange_active_recorder(Recorder* recorder);

}  // namespace overdrive::replay
