// Questions to LibTorch and the process before a backward runs: whether compiled autograd or Python's engine
// takes the call, which devices have threads and streams of their own, and whether a loaded object reads graph
// tasks. No state but caches; any thread.
#pragma once

#include "engine/base/export.h"
#include "engine/base/torch_types.h"

namespace overdrive::engine::host {

// Whether a compiled autograd function is set: stock gives the whole call to that function. The variable that
// holds it has no exported name, and is found in the code of Engine::set_compiled_autograd(), as compilers
// write it for x86-64 and for 64-bit ARM. Unknown where that code is another one.
enum class CompiledAutograd { kOff, kOn, kUnknown };
CompiledAutograd compiled_autograd();

// The variable that a function's code begins by loading, or null.
OVERDRIVE_API void* variable_loaded_by(const void* function);
// For a test: from now on the process counts as one where the variable was not found, or no longer.
OVERDRIVE_API void disregard_compiled_autograd(bool disregard);

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
