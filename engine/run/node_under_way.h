// Which node a backward on this thread is running: for hooks that want to know for whom they fetch
// something. Asked by the running thread itself; what it gets lives until the node returns.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine {

// The node whose function or hooks run now, on our engine or on the host's. Null outside of backwards.
// Inside a run that has no host frame it may be that of a backward around it.
base::Node* node_under_way();

}  // namespace overdrive::engine
