// What each operator of a program reads and writes, as memories. A function of the program; any thread. Knows
// nothing of where the memories lie.
#pragma once

#include "replay/passes/passes.h"

#include <vector>

namespace overdrive::replay {

struct StepAccesses {
  // Memories of the program; one may stand there more than once.
  std::vector<int> reads = {};
  std::vector<int> writes = {};
  // It draws from a generator.
  bool draws = false;
  // It may touch anything, or call back into the program: an operator that engine/operators/facts does not
  // know.
  bool is_foreign = false;
};

// A tensor counts with all of its memory. A result that is no new tensor counts as written.
StepAccesses accesses_of(const Program& program, size_t op);

}  // namespace overdrive::replay
