// Keeps the warnings of a run and gives them to the caller's handler at the end, as a graph task of the host
// does. For runs without a graph task of their own. On the stack of the run; its thread only.
#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace overdrive::engine {

class WarningCollector final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { warnings_.push_back(warning); }

  // Gives each warning once to the current handler.
  void replay() {
    std::vector<c10::Warning> warnings;
    warnings.swap(warnings_);
    for (const c10::Warning& warning : warnings) c10::warn(warning);
  }

 private:
  std::vector<c10::Warning> warnings_;
};

}  // namespace overdrive::engine
