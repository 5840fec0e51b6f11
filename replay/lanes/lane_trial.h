// What tests of lanes ask for: more lanes than processors, steps that gain nothing, other orders of arrival. A
// value of the process; set while no captured step is called.
#pragma once

#include "engine/base/export.h"

#include <cstdint>

namespace overdrive::replay {

struct LaneTrial {
  // Processors that count as given; 0: those that are.
  int cores = 0;
  // Every step runs on all its lanes from the first replay on, by costs that the seed makes up.
  bool always = false;
  // A schedule that promises enough is used without being tried.
  bool is_trusted = false;
  uint64_t seed = 0;
  // Every step that can be divided is, into so many shares; 0: those that are worth it.
  int shares = 0;
  // Each step of a lane begins up to so many microseconds late, as the seed says.
  int longest_delay = 0;
};

OVERDRIVE_API void try_lanes(const LaneTrial& trial);
const LaneTrial& lane_trial();

}  // namespace overdrive::replay
