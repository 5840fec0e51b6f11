// The entry of this component: which number a node's type has, and running a node by it. Any thread.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/node/node_call.h"

#include <string>

namespace overdrive::engine::native_nodes {

// For a plan. 0: the type is none of ours.
uint16_t number_of(const base::Node& node);

// Runs the node in the place of its apply(), or changes nothing and returns false. `results` must be empty; it
// gets one place an edge. `views_are_seen`: the program may get what the node returns. Counts what happened;
// with a refusal it only counts.
bool run(uint16_t number, base::Node& node, base::variable_list& gradients, base::variable_list& results,
         bool views_are_seen, NativeRefusal refusal);

// Of the types, by number; [0] is empty.
size_t count_types();
const std::string& type_name(size_t number);

}  // namespace overdrive::engine::native_nodes
