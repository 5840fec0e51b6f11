// The run that this thread is in: a region's first run, or a later one. For functions that behave differently
// then, such as one that counts its calls. Thread-local; any thread may ask.
#pragma once

#include "engine/base/export.h"

namespace overdrive::checkpoint {

// True while a region runs for the first time and will run again.
OVERDRIVE_API bool is_checkpointing();
// True while a region runs again. A region inside one that runs again does both.
OVERDRIVE_API bool is_recomputing();

}  // namespace overdrive::checkpoint
