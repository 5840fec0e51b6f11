// Whether this thread is inside a region that runs for the first time, or again. For regions that behave
// differently then: a batch norm that counts each batch once. Thread-local; any thread may ask.
#pragma once

#include "engine/base/export.h"

namespace overdrive::checkpoint {

// True while a region runs for the first time and will run again.
OVERDRIVE_API bool is_checkpointing();
// True while a region runs again. A region inside one that runs again does both.
OVERDRIVE_API bool is_recomputing();

// Says so for the length of a scope. Private.
class PhaseScope {
 public:
  enum class Phase { kCheckpointing, kRecomputing };

  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const bool checkpointing_;
  const bool recomputing_;
};

}  // namespace overdrive::checkpoint
