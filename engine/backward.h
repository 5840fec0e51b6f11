// One call to the engine: plans it, decides what has to be around the run (nothing, a host frame,
// or the frame of the backward outside), runs it: on the calling thread, which workers may help.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/options.h"

namespace overdrive::engine {

class OverdriveEngine;

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
base::variable_list run_backward(OverdriveEngine& engine, const BackwardCall& call, const Options& options);

}  // namespace overdrive::engine
