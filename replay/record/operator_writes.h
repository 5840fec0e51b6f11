// Which arguments of an operator it changes, and which of these it does not read first: what the schema says,
// and what it keeps to itself. Functions of the operator; any thread.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>

namespace overdrive::replay {

// Arguments that the operator changes although its schema does not say so.
c10::ArrayRef<int> hidden_writes(const std::string& name);
bool writes_argument(const c10::Argument& argument);
// Whether the argument, which the operator writes, is not read.
bool overwrites(const std::string& name, const c10::Argument& argument);

// Whether the values of the argument matter, and not its sizes alone.
bool reads_values(const std::string& name, size_t argument);

}  // namespace overdrive::replay
