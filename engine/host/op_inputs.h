// The arguments that an operator was called with, for a start callback of LibTorch's RecordFunction. Reads a
// private field of LibTorch's: RecordFunction::inputs() asks a flag first in builds without NDEBUG, and a
// LibTorch that was built with NDEBUG never sets the flag (docs/host_contract.md). No state, any thread.
#pragma once

#include <ATen/record_function.h>

namespace overdrive::engine::host {

namespace op_inputs {

using Inputs = c10::ArrayRef<const c10::IValue>;
// An explicit instantiation may name private members; a friend function hands them out.
struct Field {
  friend constexpr Inputs at::RecordFunction::*place(Field);
};
template <auto kPlace>
struct Reveal {
  friend constexpr Inputs at::RecordFunction::*place(Field) { return kPlace; }
};
template struct Reveal<&at::RecordFunction::inputs_>;

}  // namespace op_inputs

// Returns the arguments of the operator.
inline op_inputs::Inputs inputs_of(const at::RecordFunction& op) { return op.*place(op_inputs::Field()); }

}  // namespace overdrive::engine::host
