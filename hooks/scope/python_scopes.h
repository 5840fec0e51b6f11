// Scopes that PyTorch has in Python, under its names:
//
//   const auto on_cpu = overdrive::save_on_cpu();  // saved tensors leave their device
//   const auto may_change = overdrive::allow_mutation_on_saved_tensors();  // and may be changed after the save
//
// A scope is one of ScopedHooks: of this thread, nested, with Overdrive installed. Any thread.
#pragma once

#include "hooks/scope/hook_stack.h"

namespace overdrive::hooks {

// Tensors that operators save are copied to CPU memory and come back to their device in the backward. Tensors
// on the CPU stay as they are. `pin_memory`: through page-locked memory, and beside the program's own work.
// offload_to_cpu() does the same on streams of its own, ahead of the backward if it is schedulable().
[[nodiscard]] OVERDRIVE_API ScopedHooks save_on_cpu(bool pin_memory = false);

// A tensor may be changed in place after an operator saved it: the backward computes with its values at the
// save. Parameters, too. PyTorch copies a tensor when it is changed; here each saved tensor is copied when it
// is saved, once for all operators that save the same values, so the scope costs the memory of a copy.
[[nodiscard]] OVERDRIVE_API ScopedHooks allow_mutation_on_saved_tensors();

}  // namespace overdrive::hooks
