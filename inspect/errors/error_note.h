// The note beside an error out of a backward: the node, the way to it, the gradients that fit it. Every
// backward on Overdrive notes this beside its errors and leaves the errors as stock has them; OVERDRIVE_ERRORS
// puts the note into the text of what() too. Any thread may ask.
#pragma once

#include "engine/base/export.h"

#include <exception>
#include <string>

namespace overdrive {

// The note of an error that a backward threw, on whichever thread its node ran; "" for any other error. Call
// inside the catch block. The last 16 notes are known.
OVERDRIVE_API std::string error_note(const std::exception& error);

// The note of the last error that a node threw on this thread or on a worker of the engine; "" when there was
// none.
OVERDRIVE_API std::string last_error_note();

}  // namespace overdrive
