// One node that the engine runs in the place of the node's own apply(): what comes, what goes, and what a
// function may do with it. Made for one node of a run, on the run's thread. A function checks everything before
// it writes anything; then it runs, or it declines and nothing has changed. The caller has made sure of the
// surroundings: no grad mode, no hooks, no mode of the dispatcher, keys as a thread begins with.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/own_nodes/outcome.h"

namespace overdrive::engine {

struct OwnCall {
  base::Node& node;
  base::variable_list& gradients;  // as many as the node has inputs; used up when the function runs
  base::variable_list& results;    // one an edge, undefined at first
  bool views_are_seen;             // the program may get a result: a view must know what it is a view of

  bool wants(size_t edge) const { return edge < results.size() && node.next_edges()[edge].is_valid(); }
};

using OwnFunction = OwnOutcome (*)(OwnCall&);

}  // namespace overdrive::engine
