// Whether a program out of a file may run: every index, type, size and alias is looked at, and the order of
// reads and writes is followed from the first operator to the last. What can be found out is not believed: the
// lifetimes of memory, and what an operator writes. Owns nothing; one thread. Knows LibTorch's operators, and
// no tensors.
#pragma once

#include "replay/file/stored_step.h"

namespace overdrive::replay {

// The operators that the step names, in its order. Throws at one that LibTorch does not have, or has with other
// arguments, and at one that a file may not name.
std::vector<c10::OperatorHandle> operators_of(const StoredStep& step);

// Tables that programs share: names, sizes, optimizers. Throws where they are wrong. `most_memory`: bytes.
void check_tables(const StoredStep& step, uint64_t most_memory);

// Throws where a call proves other tables than those of the file: they were changed after it was made.
void check_calls(const StoredStep& step);

// A tensor of the file of which a program uses elements that no view names, so that a state would lose them;
// -1: there is none.
int tensor_without_name(const StoredStep& step);

// The program, without memory: weak references are empty. Throws where it may not run.
Program checked_program(const StoredStep& step, const StoredProgram& stored,
                        const std::vector<c10::OperatorHandle>& operators, uint64_t most_memory);

}  // namespace overdrive::replay
