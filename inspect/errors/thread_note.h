// OVERDRIVE_VERBOSE=1: one warning a process where several threads are set and the tensors of its backwards are
// too small for them. Any thread. docs/guide/not_faster.md says what to do.
#pragma once

namespace overdrive::inspect {

// From now on, while the options ask for it. Follows the first backwards, and leaves then.
void note_threads();

}  // namespace overdrive::inspect
