// Saved tensors leave an accelerator for CPU memory and come back. Any accelerator that LibTorch knows; any
// thread. Copies run on a stream of their own beside the program's, both ways, and only the streams that use a
// copy wait for it. Tensors on the CPU stay, with one warning.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

#include <cstdint>

namespace overdrive::hooks {

struct OffloadOptions {  // Limits of memory.
  // Smaller tensors stay on their device: a copy costs more than they hold.
  int64_t min_bytes = 4096;
  // Idle buffers are kept up to so many bytes, for the next step.
  int64_t most_idle_bytes = int64_t{4} << 30;
};

OVERDRIVE_API HooksPtr offload_to_cpu(OffloadOptions options = {});  // Throws for a limit below 0.

}  // namespace overdrive::hooks
