// The memory of one run: its plan, a slot for each gradient that is on its way, a list to call nodes with. A
// RunMemoryLease takes it from the thread's spare ones and gives it back, empty, at the end.
#pragma once

#include "engine/plan/plan.h"

#include <vector>

namespace overdrive::engine {

struct RunMemory {
  Plan plan;
  std::vector<at::Tensor> slots;
  base::variable_list inputs;  // of the node that the calling thread runs
  base::variable_list outputs;

  // Drops every gradient and forgets the graph.
  void clear();
};

}  // namespace overdrive::engine
