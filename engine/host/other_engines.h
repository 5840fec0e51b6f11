// Engines that stand beside ours: compiled autograd, which stock hands whole calls to, and Python's. Any
// thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine::host {

// True while a compiled autograd function is set: stock gives the whole call to that function.
bool compiled_autograd_is_on();
// False where LibTorch's build hides compiled autograd.
bool compiled_autograd_is_visible();

// True when `engine` is Python's, from `import torch`.
bool is_python_engine(const base::Engine& engine);

}  // namespace overdrive::engine::host
