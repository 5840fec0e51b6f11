// Two recordings of the same function, operator by operator and argument by argument. A function of its
// arguments; any thread. Whether values are equal is the self-check's.
#pragma once

#include "replay/record/program.h"

#include <functional>
#include <string>

namespace overdrive::replay {

// Whether the argument of an operator may differ: an optimizer's number that is known to change.
using MayDiffer = std::function<bool(size_t op, size_t argument)>;

// The first difference, as a sentence; empty when there is none.
std::string first_difference(const Program& a, const Program& b, const MayDiffer& may_differ);

}  // namespace overdrive::replay
