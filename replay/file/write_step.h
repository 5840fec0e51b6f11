// Captured steps as a step file: programs that replay now become tables, the tensors that they use from outside
// get names and values, and each program makes the call that will prove it. Used on the thread of the steps;
// changes nothing of them. What cannot be in a file is an error that says why.
#pragma once

#include "replay/file/program_to_save.h"
#include "replay/file/save_options.h"

#include <string>
#include <vector>

namespace overdrive::replay {

// `names` come before those of the optimizers. Replaces the file when all of it is written.
void write_step(const std::string& path, const std::vector<FunctionToSave>& functions,
                const SaveOptions& options);

}  // namespace overdrive::replay
