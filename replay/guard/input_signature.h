// The looks of the inputs of a call: which recording fits them. A value; made and compared on the calling
// thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace overdrive::replay {

struct InputLooks {
  c10::DimVector sizes;
  c10::DimVector strides;
  at::ScalarType type;
  c10::DispatchKeySet keys;
  // Of the first element, modulo what kernels can tell.
  uint8_t alignment;

  explicit InputLooks(const at::Tensor& input);
  bool fits(const at::Tensor& input) const;
};

// Why these inputs cannot be given to a captured step; empty when they can.
std::string refusal_of_inputs(const std::vector<at::Tensor>& inputs);
bool fits(const std::vector<InputLooks>& looks, const std::vector<at::Tensor>& inputs);

// A tensor of the same looks with memory of its own.
at::Tensor buffer_like(const at::Tensor& input);
// Between tensors of the same looks.
void copy_elements(const at::Tensor& to, const at::Tensor& from);

}  // namespace overdrive::replay
