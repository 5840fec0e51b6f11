// Whether the gradients that a node returned fit the nodes they go to. The quick check settles
// the ordinary case, and sums a gradient to the sizes of an operand that the forward repeated; all else is left
// to the host's validate_outputs(), which converts and words the errors. No state, any thread.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine {

// Checks and, where the host's rules say so, changes `gradients`. An error names `node`. `below_autograd`:
// nothing can notice how a sum is made.
void check_gradients(base::Node& node, base::variable_list& gradients, bool below_autograd);

// The same for the gradients that a call to backward begins with; errors carry no prefix.
void check_root_gradients(const base::edge_list& roots, base::variable_list& gradients);

}  // namespace overdrive::engine
