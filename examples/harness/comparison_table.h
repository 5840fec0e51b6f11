// A comparison as text: a table for one model, and one for all of them. Pure functions of the result.
#pragma once

#include "examples/harness/comparison.h"

#include <string>
#include <vector>

namespace overdrive::harness {

// What one model did under both engines, line by line.
std::string table_of(const Comparison& result);

// A line a model, and one that says whether all bits were equal.
std::string summary_of(const std::vector<Comparison>& results);

}  // namespace overdrive::harness
