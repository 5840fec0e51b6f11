// Where the forward made a node, without anomaly mode: the stack of every operator that makes nodes. Recorded
// with OVERDRIVE_ERRORS=full only, outside of backwards, on the thread that installed the engine and on threads
// that have begun a backward since. Any thread may ask. Keeps the last 65,536 operators of the process, and no
// tensor.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::inspect {

// From now on while `on`: on the calling thread at once, on others with their next backward.
void record_forward_places(bool on);

// A headline and the lines of CallStack::text(). A node that no operator made, such as that of a Function in
// C++, has the place of the next operator, and the headline says so. "" when nothing was recorded.
std::string forward_place_of(const base::Node& node);

}  // namespace overdrive::inspect
