// The purpose of a step's memory. Plain values.
#pragma once

#include "engine/base/export.h"

#include <cstddef>

namespace overdrive::inspect {

enum class MemoryKind {
  kOther,        // outside of operators and nodes, or on another thread
  kActivations,  // by an operator of the forward
  kSavedCopies,  // by a saved-tensor hook: packed or unpacked
  kGradients,    // by a node of a backward; of a checkpointed region also the activations of its second run
};
inline constexpr size_t kMemoryKinds = 4;
OVERDRIVE_API const char* name_of(MemoryKind kind);  // "activations" and the like.

}  // namespace overdrive::inspect
