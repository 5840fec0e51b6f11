// The backward that released a node's saved tensors. Recorded with OVERDRIVE_ERRORS=full only, for the nodes
// that were released last. Any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::inspect {

// "backward 3 of the process, which did not keep the graph"; "" when nothing was recorded.
std::string release_of(const base::Node& node);

// From now on, while the options ask for it.
void record_releases();

}  // namespace overdrive::inspect
