// Which regions a backward will run again next, and having that begun before their turn. On the thread of the
// node that runs now, inside its backward.
#pragma once

#include "checkpoint/recompute_node.h"

#include <vector>

namespace overdrive::checkpoint {

// Note [Running ahead]
// A backward runs what is ready in the order of sequence numbers, highest first, and everything that is
// reachable from a node runs after it. So the nodes that can be reached from a Recompute, by sequence number,
// are what comes next; what cannot be reached is not seen, and what is found runs later for certain. A region
// that was recomputed too soon has cost memory and never a result.
//
// Same bits: a region that drew random numbers in its first run sets the process's generator and puts it
// back, which nobody else may see. It runs ahead at once, on this thread, where another node would run.
// All others run on a thread of our own. Regions with tensors on devices run in their turn: that thread would
// have to wait for a device's worker, which may be waiting for it.
//
// A tape belongs to the backward that ordered it. After one that failed the parameters may change, so another
// does not use it; and the segment waits for what is still being made before it goes, since its function
// need not outlive the graph.

class LookAhead {
 public:
  // Has regions without random numbers begun.
  explicit LookAhead(Recompute& now);
  // Runs those with random numbers. When `now` has recomputed its own.
  void run_the_others();

 private:
  std::vector<Recompute*> others_;
};

}  // namespace overdrive::checkpoint
