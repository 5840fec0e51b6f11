// The program's choice which tensors of a region are kept, recomputed or packed. Plain values and a function,
// called for each tensor on the thread of the forward, while the region runs.
#pragma once

#include "hooks/hooks.h"

#include <cstdint>
#include <functional>
#include <string>

namespace overdrive::checkpoint {

enum class Choice {
  kSave,       // kept in memory, as without checkpointing
  kRecompute,  // dropped
  kPack,       // given to a hook (Options::packer)
};

// A tensor that an operator of the region saves for its backward.
struct SavedByOp {
  std::string made_by;  // the node that made the tensor, "AddmmBackward0"; "" for what none made
  at::IntArrayRef sizes;
  at::ScalarType dtype;
  int64_t bytes;
};

// Not called for parameters, which are in memory anyhow.
using Policy = std::function<Choice(const SavedByOp&)>;

}  // namespace overdrive::checkpoint
