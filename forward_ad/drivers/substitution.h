// The tensors that stand for a module's own on this thread, for code that gets tensors without an operator.
// Owned by the SubstitutionScope and by every at::ThreadLocalState that was taken inside it. Private.
#pragma once

#include "forward_ad/drivers/driver_functions.h"

namespace overdrive::forward_ad::detail {

// Puts the given tensors in the place of a module's own.
void substitute_in(Tensors& tensors);

}  // namespace overdrive::forward_ad::detail
