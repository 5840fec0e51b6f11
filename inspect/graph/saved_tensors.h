// Reads the tensors that a node saved, through the visitor that compiled autograd has in every node type of
// LibTorch. No state; any thread. Takes the node's lock, runs no hook and keeps no tensor.
#pragma once

#include "engine/base/torch_types.h"
#include "inspect/graph/graph.h"

#include <vector>

namespace overdrive::inspect {

struct SavedTensors {
  std::vector<at::Tensor> tensors;
  SavedState state = SavedState::kUnknown;
};

SavedTensors saved_tensors_of(const base::NodePtr& node);

}  // namespace overdrive::inspect
