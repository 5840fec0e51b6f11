// Two recordings of the same function, operator by operator and argument by argument. A function of its
// arguments; any thread. Whether values are equal is the self-check's.
#pragma once

#include "replay/record/program.h"

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

}  // namespace overdrive::replay
