// One call to the engine: plans it, decides what has to be around the run (nothing, a host frame,
// or the frame of the backward outside), runs it. On the calling thread.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/options.h"

#include <optional>

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

// The captured gradients, or nothing when the graph has nodes that only the previous engine can
// run; then nothing has happened yet.
std::optional<base::variable_list> run_backward(OverdriveEngine& engine, const BackwardCall& call,
                                                const Options& options);

}  // namespace overdrive::engine
