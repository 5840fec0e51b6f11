// LibTorch's rules for a backward beside the rest of the process: other engines that serve a call
// (compiled autograd, Python's), threads and streams of devices, and loaded objects that read a graph task. Any
// thread.
#pragma once

#include "engine/base/export.h"
#include "engine/base/torch_types.h"

namespace overdrive::engine::host {

// True while a compiled autograd function is set: stock gives the whole call to that function.
bool compiled_autograd_is_on();

// True when `engine` is Python's, from `import torch`.
bool is_python_engine(const base::Engine& engine);

// True when some device of this process has queues of its own (all but CPU, meta and lazy).
bool has_device_with_queue();
// True when nodes on this type of device run on the calling thread in stock, too.
bool runs_on_caller(c10::DeviceType type);

// Whether the caller's stream may wait for a leaf's stream. Since 2.15 the host refuses the wait when exactly
// one of the two records a graph, because the wait would spoil the graph. The refusal is an error, or a warning
// where the program asked for one.
bool may_wait_for_leaf(const c10::Stream& caller, const c10::Stream& leaf);

// Note [View readers]: a graph task lists its nodes and their dependencies. Filling these lists costs as much
// as running the nodes. Two exported functions read the lists: get_current_graph_task_nodes_in_graph() and
// _execution_order(). A calling object imports the function's name. So the lists stay empty in a process where
// no loaded object but Overdrive's imports one of the names. A new search begins when the
// loader's count of loads moves. A program that finds the functions by dlsym() sets Options::exact to
// kAlways.
//
// Whether some loaded object can read the lists of a graph task. Cheap after the first call.
bool task_tables_have_readers();

// From now on the process counts as one without readers, or no longer. For a benchmark whose program holds a
// reader that is not part of the measurement.
OVERDRIVE_API void disregard_readers(bool disregard);

}  // namespace overdrive::engine::host
