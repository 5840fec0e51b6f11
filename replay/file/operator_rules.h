// What kernels take for granted of their arguments: sizes of a gradient, places that a forward has made,
// lengths that they allocate. A program out of a file may have anything there. Functions of a program; any
// thread. engine/operators/facts says which operators a file may name, and each of these looks at its arguments
// itself or has a rule here.
#pragma once

#include "replay/record/program.h"

#include <string>

namespace overdrive::replay {

// Why the operator cannot be given these tensors; empty when it can. The operators before it were looked at,
// its arguments are of the types that its schema says.
std::string broken_rule(const Program& program, size_t op);

}  // namespace overdrive::replay
