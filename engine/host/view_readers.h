// Whether anybody in this process could look at what a graph task says of its nodes.
#pragma once

namespace overdrive::engine::host {

// Note [View readers]: a graph task lists its nodes and what they wait for; filling those lists costs
// as much as running the nodes. They are read through two exported functions,
// get_current_graph_task_nodes_in_graph() and _execution_order(). An object that calls one of them
// imports its name, so a process in which no loaded object but ours does has nobody to fill
// them for. Objects that are loaded later are looked at when the loader's count of loads moves.
// A program that finds the functions by dlsym() sets Options::graph_views to kOn.
//
// Any thread. Cheap after the first call.
bool graph_views_have_readers();

}  // namespace overdrive::engine::host
