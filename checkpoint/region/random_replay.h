// Random numbers in regions that run again, and in stages that must not run side by side because of them.
#pragma once

#include "engine/base/generator_states.h"

#include <mutex>
#include <optional>

namespace overdrive::checkpoint {

// Whether anybody has drawn from the CPU's generator since this was made.
class RngWatch {
 public:
  bool have_moved() const;

 private:
  base::GeneratorStates before_ = base::GeneratorStates::of_devices_in_use({});
};

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
