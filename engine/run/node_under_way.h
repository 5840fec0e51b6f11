// The node that a backward is running on this thread, for hooks that fetch a tensor for it. Called by the
// running thread itself. The node lives until it returns.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine {

// The node whose function or hooks run now, on our engine or on the host's. Null outside of backwards.
// Inside a run that has no host frame it may be that of a backward around it.
base::Node* node_under_way();

}  // namespace overdrive::engine
