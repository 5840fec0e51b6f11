// The entry to hooks/: hooks for the tensors that a forward saves for its backward.
//
//   overdrive::SavedTensorHooksGuard scope(overdrive::hooks::quantise());   // every operator in this scope
//   loss = model(x);
//
// saved_tensor_hooks.h is the interface of a program's own hook, saved_tensor.h is for nodes of its own.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"
#include "hooks/packers/filters.h"
#include "hooks/packers/offload_to_cpu.h"
#include "hooks/packers/quantise.h"
#include "hooks/packers/recompute.h"
#include "hooks/packers/spill_to_disk.h"
#include "hooks/scope/hook_stack.h"
#include "hooks/scope/multi_grad_hook.h"
#include "hooks/scope/python_scopes.h"
#include "hooks/scope/saved_tensor.h"

namespace overdrive {

using hooks::allow_mutation_on_saved_tensors;
using hooks::disable_saved_tensor_hooks;
using hooks::HooksPtr;
using hooks::MultiGradHook;
using hooks::register_multi_grad_hook;
using hooks::save_on_cpu;
using hooks::SavedTensor;
using hooks::SavedTensorHooks;
using SavedTensorHooksGuard = hooks::ScopedHooks;

}  // namespace overdrive
