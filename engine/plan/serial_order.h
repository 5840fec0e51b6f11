// The order in which a run on one thread takes the nodes of a plan, known before any of them runs: what
// runs when depends on ranks and edges, never on data. A pure function of a plan that no run has touched.
// Right as long as no hook changes an edge, no node throws, and no nested backward leaves ties in another
// order: for guesses ahead, never for a decision.
#pragma once

#include "engine/plan/plan.h"

#include <cstdint>
#include <vector>

namespace overdrive::engine {

// Numbers of nodes, the first to run first. Nodes that are captured but not run are among them.
std::vector<uint32_t> serial_order(const Plan& plan);

}  // namespace overdrive::engine
