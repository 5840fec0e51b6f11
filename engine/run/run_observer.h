// Follows one run, node by node, for fetching ahead. The source that a higher folder gave to the engine makes
// an observer for each run; the run destroys it at its end, also after an error. The threads of a run may call
// at once. Without a source a run pays one comparison a node.
#pragma once

#include "engine/plan/plan.h"

#include <cstdint>
#include <memory>

namespace overdrive::engine {

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Called before node number `node` of the plan runs, on the thread that runs it. An exception ends the run,
  // and no node is blamed for it.
  virtual void begins(uint32_t node) = 0;
};

// Makes an observer for a run of this plan, or returns null. May ask serial_order() for the order. Throws
// nothing.
using RunObserverSource = std::unique_ptr<RunObserver> (*)(const Plan& plan) noexcept;

}  // namespace overdrive::engine
