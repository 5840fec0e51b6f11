#include "replay/record/active_recorder.h"

#include <utility>

namespace overdrive::replay {

namespace {
thread_local Recorder* recorder_of_thread = nullptr;
}  // namespace

Recorder* active_recorder() { return recorder_of_thread; }

Recorder* exchange_active_recorder(Recorder* recorder) { return std::exchange(recorder_of_thread, recorder); }

}  // namespace overdrive::replay
