// The hook that changes nothing: the tensor stays in memory. For what the machinery itself costs, and as the
// other half of a composition. Any thread.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

OVERDRIVE_API HooksPtr keep();

}  // namespace overdrive::hooks
