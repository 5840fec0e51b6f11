// The stack of the forward operator that made a node, where anomaly mode was on in the forward. Any thread;
// reads the stack through LibTorch's warning handler of that thread.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::inspect {

// "" where nothing was recorded, and for a node of a Python program, whose stack only Python can print.
std::string forward_stack_of(base::Node& node);

}  // namespace overdrive::inspect
