// The way in for backwards that Python starts. Python calls its own engine object, not the default engine; that
// object's execute() passes on to Engine::execute(), through one linker slot of libtorch_python.so. The entry
// is that slot, redirected to a function of ours. Parsing, the GIL and Python's errors stay the host's.
// Process-wide: once open it stays open, and the function decides per call who serves. Any thread may open
// it. No header of Python's is used.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::engine::python_entry {

// Engine::execute() as a plain function: the object comes first.
using Execute = base::variable_list (*)(base::Engine* self, const base::edge_list& roots,
                                        const base::variable_list& gradients, bool keep_graph,
                                        bool create_graph, bool accumulate_grad,
                                        const base::edge_list& outputs);

// Has `ours` called instead of Engine::execute() by Python's engine, from now on. Returns why it cannot be
// done, and then nothing was changed; else "". Without Python in the process there is nothing to do.
std::string open(Execute ours);

bool is_open();

// The function that the slot held before: LibTorch's Engine::execute(). Only once the entry is open.
Execute stock();

}  // namespace overdrive::engine::python_entry
