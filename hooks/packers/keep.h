// The hook that changes nothing: the tensor stays in memory. Shows the cost of the machinery, and serves as
// half of a composition. Its body is in recompute.cpp. Any thread.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

OVERDRIVE_API HooksPtr keep();

}  // namespace overdrive::hooks
