// The signatures of the inputs of a call: which recording fits them. A value; made and compared on the calling
// thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace overdrive::replay {

struct InputSignature {
  c10::DimVector sizes;
  c10::DimVector strides;
  at::ScalarType type;
  c10::DispatchKeySet keys;
  bool requires_grad;
  // Whether a view of it made without a graph says that it requires a gradient, as the view's base decides.
  bool views_require_grad;
  // Of the first element, modulo what decides a kernel's bits: Note [Alignment of inputs] in the source.
  uint8_t alignment;
  // The first of the inputs that is the same tensor.
  size_t same_as;

  InputSignature(const std::vector<at::Tensor>& inputs, size_t index);
  bool fits(const std::vector<at::Tensor>& inputs, size_t index) const;
  // Whatever the others are.
  bool fits(const at::Tensor& input) const;
};

// Why these inputs cannot be given to a captured step, or part; empty when they can.
std::string refusal_of_inputs(const std::vector<at::Tensor>& inputs, bool is_part);
std::vector<InputSignature> signatures_of(const std::vector<at::Tensor>& inputs);
bool fits(const std::vector<InputSignature>& signatures, const std::vector<at::Tensor>& inputs);

// Of each input a tensor of the same signature with memory of its own; one for inputs that are one tensor.
std::vector<at::Tensor> buffers_like(const std::vector<at::Tensor>& inputs);
// Whether two tensors of the same signature have the same bits.
bool same_elements(const at::Tensor& a, const at::Tensor& b);
// A fresh tensor of the same signature, at the same offset in memory of its own.
at::Tensor room_for(const at::Tensor& tensor);
// Several. Those that share memory do so again.
std::vector<at::Tensor> room_for(const std::vector<at::Tensor>& tensors);
// The same with the values.
std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors);
// Between tensors of the same signature.
void copy_elements(const at::Tensor& to, const at::Tensor& from);

}  // namespace overdrive::replay
