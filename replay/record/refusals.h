// Reasons for which an operator cannot be in a captured step, each a sentence that names the operator and says
// what to do. Functions of their arguments; any thread.
#pragma once

#include "replay/record/refusal.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace overdrive::replay {

// Of an operator before it runs. Empty when nothing is against the operator.
std::string refusal_of(const std::string& name);
// Of a tensor among an operator's arguments or results; empty for a tensor that a recording understands.
std::string refusal_of(const at::Tensor& tensor, const std::string& name);
// Whether what the operator returns tells the program something of its data: a number, as item() does, or
// sizes, as x[mask] does.
bool answers(const c10::OperatorHandle& handle, const std::string& name, at::ArrayRef<c10::IValue> arguments);
// As a user knows an operator that answers.
std::string title_of_answer(const std::string& name);
// Of an operator that uses memory from before the call, or a gradient, that died in the call.
Refusal refusal_of_what_died(const std::string& name, bool is_gradient);
// Of an operator that returned a number which is no answer, unless the number depends on sizes and flags alone.
std::string refusal_of_host_result(const std::string& name);

}  // namespace overdrive::replay
