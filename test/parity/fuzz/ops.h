// The ops that programs are made of: one table row an op, with the function and its text, so
// that a printed program does what the interpreted one did. Fixed; any thread may read it.
// Leaves to the generator which operands an op gets, and to LibTorch to refuse them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/parity/fuzz/torch.h"

namespace overdrive::fuzz {

enum class Group : uint8_t { kMath, kView, kInPlace, kComplex, kSparse, kNested, kFunction, kConstant };

struct Op {
  const char* name;
  int arity;
  int results;
  Group group;
  variable_list (*run)(const variable_list& in, int64_t k);
  const char* text;  // over a, b, c and k; the k of a kFunction is the id of its statement
};

const std::vector<Op>& ops();
// The rows of functions.h, a part of ops().
const std::vector<Op>& function_rows();
// The op's place in ops(); throws c10::Error for a name that is none.
size_t op_index(const std::string& name);

// A leaf as kLeaf describes it. leaf_text() is the same in words of C++.
inline constexpr int kShapes = 11, kLayouts = 8, kDtypes = 5;
Tensor make_leaf(int shape, int layout, int dtype, int64_t k, bool requires_grad);
std::string leaf_text(int shape, int layout, int dtype, int64_t k, bool requires_grad);

}  // namespace overdrive::fuzz
