// A node in words: its name and number, the way to it from the roots of a backward, the gradients it takes.
// Pure functions of nodes that somebody keeps alive, and of a plan. Any thread.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/plan/plan.h"

#include <string>

namespace overdrive::inspect {

// "MulBackward0 #12"; a leaf has no number.
std::string words_for(const base::Node& node);

// "MeanBackward0 #20 > AddBackward0 #18 > ... 7 more ... > MulBackward0 #12": a shortest way, with its middle
// left out. The way is that of the plan, so it does not matter which edges hooks have changed since. Empty when
// they have cut it: then its nodes may be gone. Call it for a node that runs, which all nodes before it have.
std::string path_to(uint32_t node, const engine::Plan& plan, const base::edge_list& roots);

// "[32, 64] Float on cpu, [64] Float on cpu": the gradients that fit the node.
std::string gradients_of(const base::Node& node);

}  // namespace overdrive::inspect
