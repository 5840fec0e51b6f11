// The predicted peak of a recorded step with another treatment of its saved tensors. Pure functions:
// the list of allocations is changed as the remedy would change it, and added up again. Times are not
// predicted.
#pragma once

#include "inspect/cost/remedy.h"
#include "inspect/cost/step_record.h"

#include <vector>

namespace overdrive::inspect {

// The best of each kind, the lowest peak first. Empty when the step ran no backward.
std::vector<Remedy> remedies_for(const StepRecord& step);

}  // namespace overdrive::inspect
