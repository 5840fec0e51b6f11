// Whether some loaded object can read the lists of nodes of a graph task. No owner; any thread. Cheap after the
// first call.
#pragma once

#include "engine/base/export.h"

namespace overdrive::engine::host {

// Note [View readers]: a graph task lists its nodes and their dependencies. Filling these lists costs as much
// as running the nodes. Two exported functions read the lists: get_current_graph_task_nodes_in_graph() and
// _execution_order(). A calling object imports the function's name. So the lists stay empty in a process where
// no loaded object but Overdrive's imports one of the names. A new search begins when the
// loader's count of loads moves. A program that finds the functions by dlsym() sets Options::exact to
// kAlways.
bool task_tables_have_readers();

// From now on the process counts as one without readers, or no longer. For a benchmark whose program holds a
// reader that is not part of the measurement.
OVERDRIVE_API void disregard_readers(bool disregard);

}  // namespace overdrive::engine::host
