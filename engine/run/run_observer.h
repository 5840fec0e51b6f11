// What a backward tells somebody who wants to know what it will do: for fetching ahead. Made for one run
// by the source that a higher folder gave to the engine, and gone when the run is, also after an error. The
// engine knows nothing of what an observer does; without a source a run pays one comparison a node.
#pragma once

#include "engine/plan/plan.h"

#include <cstdint>
#include <memory>

namespace overdrive::engine {

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Before node number `node` of the plan runs, on the thread that runs it; the threads of a run may call at
  // once. Throws nothing.
  virtual void begins(uint32_t node) noexcept = 0;
};

// Looks at the plan of a run that is about to begin (and may ask serial_order() for its order); null when
// it does not care. Throws nothing.
using RunObserverSource = std::unique_ptr<RunObserver> (*)(const Plan& plan) noexcept;

}  // namespace overdrive::engine
