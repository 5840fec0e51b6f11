#include "engine/host/graph_task.h"

#include <cstddef>

namespace overdrive::engine::host {

using namespace torch::autograd;

GraphTask* current_graph_task() {
  // The one exported accessor that returns an address inside the task.
  const auto* member = get_current_graph_task_nodes_in_graph();
  if (member == nullptr) return nullptr;
  auto* address = reinterpret_cast<char*>(const_cast<std::unordered_set<Node*>*>(member));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  return reinterpret_cast<GraphTask*>(address - offsetof(GraphTask, nodes_in_graph_));
#pragma GCC diagnostic pop
}

}  // namespace overdrive::engine::host
