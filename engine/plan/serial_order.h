// The order in which a run on one thread takes the nodes of a plan, computed before the run. The order depends
// on ranks and edges, never on data. A pure function of a plan that no run has touched. The order is wrong
// after a hook changes an edge, a node throws, or a nested backward changes the order of ties. So use it for
// guesses ahead, never for a decision.
#pragma once

#include "engine/plan/plan.h"
#include "engine/plan/ready_heap.h"

#include <cstdint>
#include <vector>

namespace overdrive::engine {

// The tasks that the thread has ready when the run begins: the array of its heap. They decide how ties of the
// run come out (Note [Ties]).
struct WaitingTasks {
  std::vector<TaskRank> ranks = {};
  int32_t depth = 0;  // of the run
};

// The numbers of the nodes, in the order of running. Includes nodes that are captured and not run.
std::vector<uint32_t> serial_order(const Plan& plan, const WaitingTasks& waiting = {});

}  // namespace overdrive::engine
