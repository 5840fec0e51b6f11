// Gradients that a step finds in some calls and not in others, as where it accumulates over several calls and
// the program takes them away at the end. From the first time that this is seen, which gradients are there
// tells the step's recordings apart, as a watched value does. Owned by a CapturedFunction; one thread at a
// time. Names leaves weakly.
#pragma once

#include "replay/record/program.h"

#include <cstdint>
#include <vector>

namespace overdrive::replay {

class GradientsInTurn {
 public:
  // These leaves' gradients matter to the function. False where all of them were known, or too many sets of
  // leaves were: calls that differ are recorded anew then.
  bool learn(const std::vector<WeakTensor>& leaves);
  // Whether it has learnt some.
  bool is_used() const { return times_ > 0; }
  // Before a call: which of the leaves have a gradient.
  void look();
  // What look() saw, as a number that stands where it is.
  const uint64_t& pattern() const { return pattern_; }

 private:
  std::vector<WeakTensor> leaves_;
  uint64_t pattern_ = 0;
  int times_ = 0;
};

}  // namespace overdrive::replay
