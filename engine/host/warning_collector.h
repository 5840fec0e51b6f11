// Keeps the warnings of a run and gives them to the caller's handler at its end, as a graph task
// of the host does. For runs without one of their own. Used by the run's thread only.
#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace overdrive::engine {

class WarningCollector final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { warnings_.push_back(warning); }

  // To the handler that is current now. Each warning once.
  void replay() {
    std::vector<c10::Warning> warnings;
    warnings.swap(warnings_);
    for (const c10::Warning& warning : warnings) c10::warn(warning);
  }

 private:
  std::vector<c10::Warning> warnings_;
};

}  // namespace overdrive::engine
