// Step files for other languages, as operators of the dispatcher: overdrive::step_save writes captured steps,
// overdrive::step_load reads a file, and others use what it read by its handle. Registered once, on any thread;
// one thread at a time uses a handle. Knows nothing of the other language.
#pragma once

namespace overdrive::replay {

void register_step_operators();

}  // namespace overdrive::replay
