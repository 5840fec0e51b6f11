// The regions that a backward runs again next. Has them begun before their turn, and tells which ones this
// thread has to run. Lives on the thread of the node that runs now, inside its backward.
#pragma once

#include "checkpoint/ahead/ahead_region.h"

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
// All others on the CPU run on a thread of our own.
//
// A region on a device runs ahead on the thread of that device's nodes, by a Recompute that is there: our own
// thread would have to wait for the device's worker, which may be waiting for it. What it gives the device to
// do goes on a stream of its own, which waits for the first run and not for the gradients under way; they
// overlap on the device, not on the thread. The gradient is made on the same stream (a node runs on that of its
// forward). One that moved the CPU's generator, too, runs in its turn: the calling thread may be drawing.
//
// A tape belongs to the backward that ordered it. After one that failed the parameters may change, so another
// does not use it; and the segment waits for what is still being made before it goes, since its function
// need not outlive the graph.

// A node that runs a region again: mixed into it, and looked for in graphs.
class AheadNode {
 public:
  virtual AheadRegion& ahead_region() = 0;

 protected:
  ~AheadNode() = default;
};

class NextRegions {
 public:
  // Has regions without random numbers begun. `now` runs the region `region` again.
  NextRegions(base::Node& now, const AheadRegion& region);
  // Runs the regions that this thread has to run. When `now` has recomputed its own.
  void run_the_others();

 private:
  std::vector<AheadRegion*> others_;
};

}  // namespace overdrive::checkpoint
