// A node in words: its name and number, the way to it from the roots of a backward, the gradients it takes.
// Pure functions of a graph that somebody keeps alive. Any thread, while no other changes the graph.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::inspect {

// "MulBackward0 #12"; a leaf has no number.
std::string words_for(const base::Node& node);

// "MeanBackward0 #20 > AddBackward0 #18 > ... 7 more ... > MulBackward0 #12": a shortest way, with its middle
// left out. Empty when no way leads there.
std::string path_to(const base::Node& node, const base::edge_list& roots);

// "[32, 64] Float on cpu, [64] Float on cpu": the gradients that fit the node.
std::string gradients_of(const base::Node& node);

}  // namespace overdrive::inspect
