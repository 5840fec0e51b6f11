// Tensors whose elements are conjugated or negated by whoever reads them: views of what memory has. An operator
// without a rule of its own for them gets copies; a recording has these copies as operators, and knows no such
// tensor beside views. Functions; the recording's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>

namespace overdrive::replay {

inline bool has_lazy_bit(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_conj() || tensor.is_neg());
}

// A view of the same memory without the bits.
at::Tensor as_stored(const at::Tensor& tensor);

// Calls an operator as if the program did.
using CallRecorded = std::function<void(const c10::OperatorHandle&, c10::Stack&)>;

// Puts copies in the place of such arguments that the operator reads, where LibTorch would give it copies.
void resolve_lazy_bits(const c10::OperatorHandle& handle, c10::Stack& stack, const CallRecorded& call);

}  // namespace overdrive::replay
