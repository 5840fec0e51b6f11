// Facts of LibTorch's operators that no schema tells, a row an operator. Plain values, looked up by name; any
// thread. An operator without a row counts as the careful class. facts_test.cpp walks the dispatcher: each
// listed name exists, and a golden table shows the class of each operator. Knows no dispatcher.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace overdrive::engine {

// What the values of the arguments can do, when sizes and types are known to be right. Lack of memory is apart.
enum class Throws : uint8_t {
  kUnknown,     // no row: as kOnData
  kNever,       // arithmetic, products, views, reductions, updates
  kOnData,      // an index out of range, a probability above one, a matrix without a decomposition
  kOnIntegers,  // a division of integers by zero
};

struct OperatorFacts {
  Throws throws = Throws::kUnknown;
  // Changes what memory a tensor is, or how large it is.
  bool moves_memory = false;
  // A file may name it: it reaches no other memory than its arguments', whatever these are. Its kernel looks at
  // them, or replay/file/operator_rules does.
  bool in_files = false;
  // With tensors of float and double it computes for every number alike that is neither 0 nor 1 nor -1 nor out
  // of their range: it throws for none, and its derivative has the same operators.
  bool takes_any_number = false;
};

// The name with or without its overload: "aten::add.Tensor". A row of an overload comes before that of its
// operator; an operator in place or of a list (add_, _foreach_add_) throws as add does when it has no row.
OperatorFacts facts_of(std::string_view name);

// Every listed name, in a text that is separated by blanks. For the test.
std::string listed_operators();

}  // namespace overdrive::engine
