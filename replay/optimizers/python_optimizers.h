// The updates of PyTorch's optimizers for Python, as operators: overdrive::sgd_, overdrive::adam_ and their
// like. Owned by the dispatcher from the first call on; any thread. Note [Optimizers of Python] is in the
// source.
#pragma once

namespace overdrive::replay {

void define_python_optimizers();

}  // namespace overdrive::replay
