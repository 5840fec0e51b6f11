// Edges that carry no data: they make one node of a backward wait for another. Functions; any thread.
//
//   auto [x, token] = wait_in_backward(x);   // backward: x's gradient waits for the nodes that were made of
//   the token token = ... (token); x = release_in_backward(x, token);       // backward: x's gradient comes
//   before the token's nodes
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

namespace overdrive::checkpoint {

// An empty tensor that stands for a dependency: one for each device and requires_grad. It never gets a
// gradient.
OVERDRIVE_API at::Tensor dependency_token(const at::Device& device, bool requires_grad);

// The tensor, and a token whose history runs before the gradient of the tensor is handed on.
struct Waiting {
  at::Tensor tensor;
  at::Tensor token;
};
OVERDRIVE_API Waiting wait_in_backward(const at::Tensor& tensor);

// The tensor. Its gradient is handed on before the token's history runs.
OVERDRIVE_API at::Tensor release_in_backward(const at::Tensor& tensor, const at::Tensor& token);

}  // namespace overdrive::checkpoint
