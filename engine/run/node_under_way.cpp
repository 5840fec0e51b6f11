#include "engine/run/node_under_way.h"

#include "engine/host/host_frame.h"
#include "engine/run/active_run.h"

namespace overdrive::engine {

base::Node* node_under_way() {
  // A node of the host's that is no frame of ours runs further inside than any run of ours.
  const base::NodePtr current = torch::autograd::get_current_node();
  if (current && !HostFrame::is_frame(*current)) return current.get();
  const ActiveRun* run = thread_context().innermost;
  return run != nullptr ? run->node : nullptr;
}

}  // namespace overdrive::engine
