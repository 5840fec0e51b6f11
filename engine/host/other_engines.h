// Engines that stand beside ours: compiled autograd, which stock hands whole calls to, and Python's. Any
// thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine::host {

// True while a compiled autograd function is set: stock hands the whole call to it.
bool compiled_autograd_is_on();
// False where LibTorch's build does not let us see the above.
bool compiled_autograd_is_visible();

// True when `engine` is the one that `import torch` brings.
bool is_python_engine(const base::Engine& engine);

}  // namespace overdrive::engine::host
