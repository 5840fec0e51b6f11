// The operators whose derivatives are checked to order 5, as functions of one tensor.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace overdrive::forward_ad {

struct OpCase {
  std::string name;
  std::vector<int64_t> shape;
  std::function<at::Tensor(const at::Tensor&)> f;
  // Where the elements of the input lie.
  double low = 0.2;
  double high = 0.8;
  // The highest order that LibTorch's own formulas get right, and why no higher.
  int max_order = 5;
  // The same for the reverse mode that is compared with.
  int max_reverse_order = 5;
  std::string reason = {};
};

// For GoogleTest.
inline void PrintTo(const OpCase& op, std::ostream* out) { *out << op.name; }

std::vector<OpCase> op_table();

}  // namespace overdrive::forward_ad
