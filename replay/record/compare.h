// The first difference between two recordings of the same function, operator by operator and argument by
// argument. Functions of their arguments; any thread. Leaves the values of tensors to the self-check.
#pragma once

#include "replay/record/program.h"

#include <ATen/core/ivalue.h>

#include <cstring>
#include <functional>
#include <string>

namespace overdrive::replay {

template <typename T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Whether the argument of an operator may differ: an optimizer's number that is known to change.
using MayDiffer = std::function<bool(size_t op, size_t argument)>;

// The first difference; empty when there is none.
Refusal first_difference(const Program& a, const Program& b, const MayDiffer& may_differ);

// Whether the programs differ first in what an operator told the program of its data.
bool answers_differ(const Program& a, const Program& b);
// Whether a recording understands an argument that is no tensor: numbers, strings, generators, devices, lists
// of those, none.
bool comparable(const c10::IValue& value);
// Whether two comparable arguments are the same, bit by bit. A NaN is the same as itself.
bool same_constant(const c10::IValue& a, const c10::IValue& b);
// The argument as a word of a sentence.
std::string text_of(const c10::IValue& value);

}  // namespace overdrive::replay
