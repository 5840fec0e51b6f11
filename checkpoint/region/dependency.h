// Edges that carry no data: they make one node of a backward wait for another. Functions; any thread.
//
//   auto [x, token] = wait_in_backward(x);  // x's gradient waits for the nodes made of the token
//   token = ... (token);
//   x = release_in_backward(x, token);      // x's gradient comes before the token's nodes
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
OVERDRIVE_API Waiting wait_in_backward(const at::Tensor& tensor);  // One more node of the graph.

// The tensor. Its gradient is handed on before the token's history runs.
OVERDRIVE_API at::Tensor release_in_backward(const at::Tensor& tensor, const at::Tensor& token);

// The names of version 0.1.
[[deprecated("dependency_token()")]] inline at::Tensor phony(const at::Device& device, bool requires_grad) {
  return dependency_token(device, requires_grad);
}
[[deprecated("wait_in_backward()")]] inline Waiting fork(const at::Tensor& tensor) {
  return wait_in_backward(tensor);
}
[[deprecated("release_in_backward()")]] inline at::Tensor join(const at::Tensor& tensor,
                                                               const at::Tensor& token) {
  return release_in_backward(tensor, token);
}

}  // namespace overdrive::checkpoint
