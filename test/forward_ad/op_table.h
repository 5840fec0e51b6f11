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

// The parts of the table, and what they are made of.
namespace op_cases {

using Shape = std::vector<int64_t>;
inline const Shape kFlat{4}, kMatrix{2, 3}, kSquare{3, 3};

// Numbers that are the same in each call, so that a function is a function.
at::Tensor fixed(at::IntArrayRef sizes);
// Made of operators: at::tensor() writes through a pointer, which nothing made inside a level has.
at::Tensor indices(std::initializer_list<int64_t> values);

std::vector<OpCase> elementwise();
std::vector<OpCase> reductions();
std::vector<OpCase> products();
std::vector<OpCase> linear_algebra();
std::vector<OpCase> indexing();
std::vector<OpCase> networks();
std::vector<OpCase> losses();
std::vector<OpCase> sampling();
std::vector<OpCase> views_and_in_place();

}  // namespace op_cases

}  // namespace overdrive::forward_ad
