// Whether anything in this process could read the lists of nodes that a graph task keeps.
#pragma once

#include "engine/base/export.h"

namespace overdrive::engine::host {

// Note [View readers]: a graph task lists its nodes and what they wait for; filling those lists costs
// as much as running the nodes. They are read through two exported functions,
// get_current_graph_task_nodes_in_graph() and _execution_order(). An object that calls one of them
// imports its name, so a process in which no loaded object but ours does has nobody to fill
// them for. Objects that are loaded later are looked at when the loader's count of loads moves.
// A program that finds the functions by dlsym() sets Options::exact to kAlways.
//
// Any thread. Cheap after the first call.
bool task_tables_have_readers();

// From now on the process counts as one without readers, or no longer. For a benchmark whose program holds a
// reader that is not part of the measurement.
OVERDRIVE_API void disregard_readers(bool disregard);

}  // namespace overdrive::engine::host
