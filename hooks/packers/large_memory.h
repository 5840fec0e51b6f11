// Memory for what a packer makes on the CPU: without the dispatcher, so in whatever mode the thread is. Large
// pieces ask for huge pages: such memory comes fresh from the system each time, and finding a page for every
// 4 KiB of it costs several times what writing it does. Functions; any thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::hooks {

at::Tensor cpu_memory(at::IntArrayRef sizes, at::ScalarType type);
at::Tensor cpu_memory(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

}  // namespace overdrive::hooks
