// The table of native nodes under test: for each type of node, operators whose backward makes such nodes.
// Fixed.
#pragma once

#include "test/support/pch.h"

#include <string>
#include <vector>

namespace overdrive::test {

using torch::autograd::variable_list;

struct NativeRow {
  const char* type;
  const char* what;
  std::vector<std::vector<int64_t>> operands;  // their sizes; empty sizes: no dimensions
  at::Tensor (*run)(const variable_list& in);
};

const std::vector<NativeRow>& native_rows();

}  // namespace overdrive::test
