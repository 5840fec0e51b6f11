// The operators that changed a tensor in place. Recorded with OVERDRIVE_ERRORS=full only, for the last few
// thousand changes, on the thread that installed the engine and outside of backwards. Any thread may ask. Keeps
// version counters and no tensor.
#pragma once

#include <exception>
#include <string>

namespace overdrive::inspect {

// From now on while `on`, on the calling thread.
void record_in_place_writes(bool on);

// "the tensor was changed by aten::add_" for stock's error about a tensor that was changed in place; "" for
// another error, or when nothing was recorded. Names every operator where several changes fit the error's text.
std::string writer_of(const std::exception& error);

}  // namespace overdrive::inspect
