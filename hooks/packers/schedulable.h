// Marks a hook whose calls may be made early, late, on another thread or not at all. Its body is in
// filters.cpp. Any thread, as far as the hook is.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

// `hooks`, with the promise of Note [What a hook may do]: its pack() and unpack() depend on nothing but their
// arguments. Packing then waits until the tensor's last use is over, and unpacking begins before the node that
// wants the tensor. Inside compose() both parts need the mark, or the whole.
OVERDRIVE_API HooksPtr schedulable(HooksPtr hooks, Schedule schedule = {});

}  // namespace overdrive::hooks
