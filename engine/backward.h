// One call to the engine: plans it, decides on the surroundings of the run (none, a host frame, or the frame of
// the backward outside), and runs it on the calling thread, with workers where the graph has devices.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/host/host_frame.h"
#include "engine/options.h"
#include "engine/run/seat.h"

namespace overdrive::engine {

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

// The captured gradients.
base::variable_list run_backward(const EngineState& state, const BackwardCall& call);

}  // namespace overdrive::engine
