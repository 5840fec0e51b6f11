// Two hooks that move nothing: recompute() drops a saved tensor and makes it again when it is needed, by a
// function of the program; keep() changes nothing. Any thread, as far as the functions are.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

namespace overdrive::hooks {

// Makes the tensor again, each time it is asked; without grad mode. Must not refer to the tensor itself.
using MakeAgain = std::function<at::Tensor()>;
// Returns the function for a tensor; the tensor of an empty function is kept.
using PlanRecompute = std::function<MakeAgain(const at::Tensor&, const SaveInfo&)>;

// A checkpoint of a single tensor.
OVERDRIVE_API HooksPtr recompute(PlanRecompute plan);

// The tensor stays in memory. Shows the cost of the machinery, and serves as half of a composition.
OVERDRIVE_API HooksPtr keep();

}  // namespace overdrive::hooks
