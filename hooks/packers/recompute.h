// A saved tensor is dropped and made again when it is needed, by a function of the program: a checkpoint of a
// single tensor. Any thread, as far as the functions are.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

// Makes the tensor again, each time it is asked; without grad mode. Must not refer to the tensor itself.
using MakeAgain = std::function<at::Tensor()>;
// Returns the function for a tensor; the tensor of an empty function is kept.
using PlanRecompute = std::function<MakeAgain(const at::Tensor&, const SaveInfo&)>;

OVERDRIVE_API HooksPtr recompute(PlanRecompute plan);

}  // namespace overdrive::hooks
