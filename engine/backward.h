// One call to the engine: plans it, decides on the surroundings of the run (none, a host frame, or the frame of
// the backward outside), and runs it on the calling thread, with workers where the graph has devices.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/host/host_frame.h"
#include "engine/options.h"
#include "engine/run/thread_run_state.h"

namespace overdrive::engine {

// What a backward runs in. A run has a graph task of the host only where somebody could see that it has none:
//
//   a node of another thread's worker             the worker enters the run through the task
//   a node that is not LibTorch's, or a hook      its code may ask for the task or the current node, or queue a
//                                                 callback; not a TasklessNode, in a plain backward
//   only some gradients are wanted                nodes of LibTorch ask the task which
//   the call comes from inside a pruned backward  nodes would get the answer of the backward outside
//   saved-tensor hooks that are on                they run code of the program, which may ask
//   a mode of the dispatcher                      the same
//   a profiler, or a watcher of the program       the same
//   anomaly mode                                  a node made meanwhile notes the current node as its parent
//   stock's warning of create_graph is owed       the host gives it, when it makes a task
//   Options::exact is kAlways                     the user asked for it
//
// A task that is there already may be borrowed where the borrower is the only thread inside, is not the first
// pruned backward of the nest (is_checkpoint_valid() changes there), and owes no warning.
enum class Surroundings : uint8_t {
  kBare,    // no task: nothing in the table holds
  kShared,  // the task of the frame around the call: see SharedTask
  kFramed,  // a task of its own: see Note [Host frame]
};

// The engine around a backward, as it is when the backward begins.
struct EngineState {
  HostEngine& engine;
  const Options& options;
  RunWatchSource observers;       // or null
  ErrorDescriber describe_error;  // or null
  bool saved_hooks_in_use;        // hooks of saved tensors live or may be called: they run user code
};

// The arguments of Engine::execute().
struct BackwardCall {
  const base::edge_list& roots;
  const base::variable_list& gradients;
  bool keep_graph;
  bool create_graph;
  bool accumulate_grad;
  const base::edge_list& outputs;
};

// Runs the call and returns the captured gradients. By OverdriveEngine, on the thread of the caller.
base::variable_list run_backward(const EngineState& state, const BackwardCall& call);

}  // namespace overdrive::engine
