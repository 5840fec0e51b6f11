// Reasons for which an operator cannot be in a captured step, each a sentence that names the operator and says
// what to do. Functions of their arguments; any thread. What differs between two recordings is compare.h's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace overdrive::replay {

// Before it runs. Empty when nothing is against it.
std::string refusal_of(const c10::OperatorHandle& handle, const std::string& name);
// Why a tensor among its arguments or results is not understood; empty when it is.
std::string refusal_of(const at::Tensor& tensor, const std::string& name);
// Whether a replay compares what the operator returns to the program with what it returned in the recording.
bool is_checked_result(const std::string& name);
// A number that it returned to the program, other than those that depend on sizes and flags alone.
std::string refusal_of_host_result(const std::string& name);

}  // namespace overdrive::replay
