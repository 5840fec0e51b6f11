// Edges that carry no data: what makes one node of a backward wait for another. Functions; any thread.
//
//   auto [x, phony] = fork(x);     // backward: fork waits for whatever was made of the phony
//   phony = ... (phony);
//   x = join(x, phony);            // backward: join comes before it
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

namespace overdrive::checkpoint {

// An empty tensor that stands for a dependency; always the same one for a device and requires_grad. It never
// gets a gradient.
OVERDRIVE_API at::Tensor phony(const at::Device& device, bool requires_grad);

struct Forked {
  at::Tensor tensor;
  at::Tensor phony;
};
OVERDRIVE_API Forked fork(const at::Tensor& tensor);

// The tensor, whose gradient will be handed on before the phony's history runs.
OVERDRIVE_API at::Tensor join(const at::Tensor& tensor, const at::Tensor& phony);

}  // namespace overdrive::checkpoint
