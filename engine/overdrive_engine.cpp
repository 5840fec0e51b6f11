#include "engine/overdrive_engine.h"

namespace overdrive::engine {

OverdriveEngine& OverdriveEngine::get() {
  static auto* engine = new OverdriveEngine;
  return *engine;
}

OverdriveEngine::OverdriveEngine() : previous_(&Engine::get_base_engine()) {}
OverdriveEngine::~OverdriveEngine() { stop(); }

void OverdriveEngine::set_options(const Options&) {}

base::variable_list OverdriveEngine::execute(const base::edge_list& roots, const base::variable_list& inputs,
                                             bool keep_graph, bool create_graph, bool accumulate_grad,
                                             const base::edge_list& outputs) {
  return previous().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
}

}  // namespace overdrive::engine
