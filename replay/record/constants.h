// Arguments of operators that are no tensors: whether two are the same, bit by bit, and how a sentence names
// one. Functions of their arguments; any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace overdrive::replay {

// Whether a recording understands the kind: numbers, strings, generators, devices, lists of those, none.
bool comparable(const c10::IValue& value);
// Both comparable. A NaN is the same as itself.
bool same_constant(const c10::IValue& a, const c10::IValue& b);
std::string text_of(const c10::IValue& value);

}  // namespace overdrive::replay
