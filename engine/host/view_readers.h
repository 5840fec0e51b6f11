// Whether some loaded object can read the lists of nodes of a graph task. No owner; any thread. Cheap after the
// first call.
#pragma once

namespace overdrive::engine::host {

// Note [View readers]: a graph task lists its nodes and their dependencies. Filling these lists costs as much
// as running the nodes. Two exported functions read the lists: get_current_graph_task_nodes_in_graph() and
// _execution_order(). A calling object imports the function's name. So the lists stay empty in a process where
// no loaded object but Overdrive's imports one of the names. A new search begins when the
// loader's count of loads moves. A program that finds the functions by dlsym() sets Options::graph_views to
// kOn.
bool graph_views_have_readers();

}  // namespace overdrive::engine::host
