// The peak of a step with another treatment of its saved tensors, as the record of the step predicts it. Plain
// values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::inspect {

struct Remedy {  // A way to a lower peak, and what it would give.
  enum Kind {
    kInt8,         // SavedTensorHooksGuard of hooks::quantise() around the forward
    kCheckpoint,   // checkpointed() around one segment
    kCheckpoints,  // checkpointed() around each of several
  };
  Kind kind;
  std::string name = {};
  int64_t peak_bytes = 0;
  // The first and last sequence number of the nodes of each segment.
  std::vector<std::pair<uint64_t, uint64_t>> segments = {};
};

}  // namespace overdrive::inspect
