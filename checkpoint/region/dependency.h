// Edges that carry no data: they make one node of a backward wait for another. Functions; any thread.
//
//   auto [x, phony] = fork(x);     // backward: fork waits for the nodes that were made of the phony
//   phony = ... (phony);
//   x = join(x, phony);            // backward: join comes before the phony's nodes
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

namespace overdrive::checkpoint {

// An empty tensor that stands for a dependency: one for each device and requires_grad. It never gets a
// gradient.
OVERDRIVE_API at::Tensor phony(const at::Device& device, bool requires_grad);

// The tensor, and a phony whose history runs before the gradient of the tensor is handed on.
struct Forked {
  at::Tensor tensor;
  at::Tensor phony;
};
OVERDRIVE_API Forked fork(const at::Tensor& tensor);

// The tensor. Its gradient is handed on before the phony's history runs.
OVERDRIVE_API at::Tensor join(const at::Tensor& tensor, const at::Tensor& phony);

}  // namespace overdrive::checkpoint
