// The order in which a backward on one thread takes its nodes, told before the backward runs. Any thread may
// ask; the answer belongs to the asking thread, because equal ranks depend on what its backwards have ready.
// docs/guide/inspecting.md says which programs run in another order after all.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace overdrive::inspect {

struct OrderedNode {                            // A node in its turn.
  const torch::autograd::Node* node = nullptr;  // belongs to the graph
  std::string name;
  uint64_t sequence_nr = 0;
  // Of a call with inputs: a gradient of the node is an answer, and its function is not called.
  bool captured_only = false;
};

// The call that has the inputs.
enum class InputsOf {
  kGrad,      // grad(roots, inputs): the nodes of the inputs are captured
  kBackward,  // backward(inputs=): the nodes of the inputs run, for they add the gradients to leaves
};

// For backward() of the roots, or for a call with inputs. The node that LibTorch puts above several roots is
// left out. An error for a root without a graph.
OVERDRIVE_API std::vector<OrderedNode> predicted_order(const std::vector<at::Tensor>& roots,
                                                       const std::vector<at::Tensor>& inputs = {},
                                                       InputsOf call = InputsOf::kGrad);

}  // namespace overdrive::inspect

namespace overdrive {
using inspect::predicted_order;
}  // namespace overdrive
