// What an operator of a program is to the passes. Functions of the program; any thread. Knows facts that no
// schema tells by engine/operators/facts.h, and counts an operator without facts as the careful kind.
#pragma once

#include "replay/record/program.h"

namespace overdrive::replay {

// Whether the values of its arguments, with sizes and types as recorded, may make it throw.
bool may_throw_on_data(const Program& program, const Operator& op);

// Whether its results are its own, and a function of its arguments and the modes of the thread: no random
// numbers, nothing that is written, nothing that is told to the program.
bool is_function(const Program& program, const Operator& op);

// Whether it draws random numbers.
bool is_random(const Operator& op);

// Whether it is a loop over elements, each of the result made of those at the same place, whether the result
// has memory of its own or an operand's.
bool is_loop_over_elements(const Operator& op);

// Whether its kernel looks neither at the grad mode nor at who requires a gradient, as a convolution's does.
bool ignores_autograd(const Operator& op);

// Whether nobody but operators of one replay sees the memory, whatever lies in it afterwards.
bool is_passing(const Program& program, int memory);

}  // namespace overdrive::replay
