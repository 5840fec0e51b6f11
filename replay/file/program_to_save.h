// What a step file has of a captured step: programs that replay. References to parts of a Recording, for the
// time of one write_step().
#pragma once

#include "replay/file/save_options.h"
#include "replay/guard/input_signature.h"
#include "replay/guard/value_guards.h"
#include "replay/optimizers/numbers_of_optimizers.h"
#include "replay/run/replay_run.h"

#include <string>
#include <vector>

namespace overdrive::replay {

// A program that replays.
struct ProgramToSave {
  ReplayRun& run;
  // Null where it has none.
  NumbersOfOptimizers* numbers;
  const ValueGuards& value_guards;
  const std::vector<InputSignature>& inputs;
  const EagerCost& eager;
};

struct FunctionToSave {
  std::string name;
  std::vector<ProgramToSave> programs = {};
};

}  // namespace overdrive::replay
