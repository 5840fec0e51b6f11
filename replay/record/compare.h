// What a recording understands, and what differs between two recordings of the same function, operator by
// operator and argument by argument. A function of its arguments; any thread. Whether values are equal is the
// self-check's.
#pragma once

#include "replay/record/program.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>

namespace overdrive::replay {

// Whether the argument of an operator may differ: an optimizer's number that is known to change.
using MayDiffer = std::function<bool(size_t op, size_t argument)>;

// The first difference, as a sentence; empty when there is none.
std::string first_difference(const Program& a, const Program& b, const MayDiffer& may_differ);

// Arguments of operators that are no tensors: whether a recording understands the kind: numbers, strings,
// generators, devices, lists of those, none.
bool comparable(const c10::IValue& value);
// Whether two are the same, bit by bit; both comparable. A NaN is the same as itself.
bool same_constant(const c10::IValue& a, const c10::IValue& b);
// How a sentence names one.
std::string text_of(const c10::IValue& value);

// Reasons for which an operator cannot be in a captured step (refusals.cpp), each a sentence that names the
// operator and says what to do. Before it runs, with its arguments. Empty when nothing is against it.
std::string refusal_of(const c10::OperatorHandle& handle, const std::string& name,
                       at::ArrayRef<c10::IValue> arguments);
// Why a tensor among its arguments or results is not understood; empty when it is.
std::string refusal_of(const at::Tensor& tensor, const std::string& name);
// Whether a replay compares what the operator returns to the program with what it returned in the recording.
bool is_checked_result(const std::string& name);
// A number that it returned to the program, other than those that depend on sizes and flags alone.
std::string refusal_of_host_result(const std::string& name);

}  // namespace overdrive::replay
