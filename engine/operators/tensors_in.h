// The tensors in an operator's arguments: one visitor for all that look at a call. Pure functions, any thread.
#pragma once

#include "engine/host/op_inputs.h"

namespace overdrive::engine {

// Calls `visit` with each tensor in a value, defined or not, those in lists and in lists of optional tensors
// too.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

// Calls `visit` with each tensor that an operator was called with, in a start callback of RecordFunction.
template <typename Visit>
void for_each_input(const at::RecordFunction& op, Visit&& visit) {
  for (const c10::IValue& value : host::inputs_of(op)) for_each_tensor(value, visit);
}

}  // namespace overdrive::engine
