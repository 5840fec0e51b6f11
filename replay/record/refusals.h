// Reasons for which an operator cannot be in a captured step, each a sentence that names the operator and says
// what to do. Functions of their arguments; any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace overdrive::replay {

// Of an operator before it runs, with its arguments. Empty when nothing is against the operator.
std::string refusal_of(const c10::OperatorHandle& handle, const std::string& name,
                       at::ArrayRef<c10::IValue> arguments);
// Of a tensor among an operator's arguments or results; empty for a tensor that a recording understands.
std::string refusal_of(const at::Tensor& tensor, const std::string& name);
// Whether a replay compares what the operator returns to the program with what it returned in the recording.
bool is_checked_result(const std::string& name);
// Of a number that the operator returned to the program, unless the number depends on sizes and flags alone.
std::string refusal_of_host_result(const std::string& name);

}  // namespace overdrive::replay
