// What runs the steps of a replay in the place of one loop on the calling thread. Owned by its ReplayRun, and
// made after it; one thread at a time calls it. How the steps are divided is the runner's to know (lanes/).
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

namespace overdrive::replay {

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Runs all steps. False: not this time, and no step has run. Throws the error of the first step, in the
  // program's order, that throws. `done` is its place then, and `changed` whether a step has begun that changes
  // what cannot be put back.
  virtual bool run(size_t& done, bool& changed) = 0;
  // How the steps are divided, as a line of text.
  virtual void explain(std::ostream& out) const = 0;
  // The same as JSON, with the time of each step and where it waits.
  virtual std::string to_json() const = 0;
};

}  // namespace overdrive::replay
