// Random numbers in regions that run again.
#pragma once

#include "engine/base/generator_states.h"

#include <mutex>
#include <optional>

namespace overdrive::checkpoint {

// Puts the generators where they were, for the length of a scope. One thread at a time: they are the
// process's, and two that replay at once would get each other's numbers.
class RngReplay {
 public:
  explicit RngReplay(const base::GeneratorStates& states);

 private:
  std::unique_lock<std::recursive_mutex> alone_;  // the last to go
  std::optional<base::GeneratorsBack> back_;
};

}  // namespace overdrive::checkpoint
