// Finds stretches of a list that repeat: the layers of a model, the steps of a recurrence. A pure function,
// without LibTorch. Linear for short periods; a period is at most kLongestPeriod.
#pragma once

#include <cstdint>
#include <vector>

namespace overdrive::inspect {

constexpr uint32_t kLongestPeriod = 1024;

// A stretch of `period` values from `first` on that stands there `count` times.
struct Repetition {
  uint32_t first;
  uint32_t period;
  uint32_t count;
};

// From left to right, each time the repetition that covers most. Repetitions do not overlap.
std::vector<Repetition> find_repetitions(const std::vector<uint32_t>& values);

}  // namespace overdrive::inspect
