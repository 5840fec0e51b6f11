// Which of the tensors that a region saves are recomputed, and which are not: chosen by the program, tensor by
// tensor. Plain values and a function; it is called on the thread of the forward, while the region runs.
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

// A tensor that an op of the region saves for its backward.
struct SavedByOp {
  std::string made_by;  // the node that made the tensor, "AddmmBackward0"; "" for what none made
  at::IntArrayRef sizes;
  at::ScalarType dtype;
  int64_t bytes;
};

// Not asked for parameters: they are in memory anyhow.
using Policy = std::function<Choice(const SavedByOp&)>;

}  // namespace overdrive::checkpoint
