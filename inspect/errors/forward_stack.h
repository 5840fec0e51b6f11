// The stack of the forward operator that made a node: of anomaly mode where it was on then, else of
// forward_places. Any thread that no other uses LibTorch's warning handler on.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::inspect {

// "" where nothing was recorded. Without a newline at its end.
std::string forward_stack_of(base::Node& node);

}  // namespace overdrive::inspect
