// Runs one node with its hooks, in stock's order. No state; runs on the thread of the run.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::engine {

// The hooks of the tensors that this node made, and those that retain their gradients. They run
// for every node that a backward passes, also when its apply() is not needed.
void call_tensor_pre_hooks(base::Node& node, base::variable_list& gradients);

// Pre-hooks, apply(), the check of what it returned, post-hooks. `gradients` is used up.
base::variable_list call_node(base::Node& node, base::variable_list& gradients, bool keep_graph);

// Anomaly mode: an error when a gradient that `node` returned holds a NaN.
void check_for_nan(base::Node& node, const base::variable_list& gradients);

}  // namespace overdrive::engine
