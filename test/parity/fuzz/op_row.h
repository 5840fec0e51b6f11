// Macros for a row of the table of ops: one expression, kept as code and as text. For the files
// that fill the table, nobody else.
#pragma once

#include "test/parity/fuzz/ops.h"

namespace overdrive::fuzz {

template <size_t N>
const Tensor& at_or_undefined(const variable_list& in) {
  static const auto* undefined = new Tensor;
  return N < in.size() ? in[N] : *undefined;
}

// Binds the letters of the expressions; not every expression has them all.
#define OVERDRIVE_FUZZ_OP(name, arity, results, group, returned, ...) \
  Op {                                                                \
    name, arity, results, Group::group,                               \
        [](const variable_list& in, int64_t k) -> variable_list {     \
          [[maybe_unused]] const Tensor& a = at_or_undefined<0>(in);  \
          [[maybe_unused]] const Tensor& b = at_or_undefined<1>(in);  \
          [[maybe_unused]] const Tensor& c = at_or_undefined<2>(in);  \
          (void)k;                                                    \
          return returned;                                            \
        },                                                            \
        #__VA_ARGS__                                                  \
  }
#define ONE(name, arity, group, ...) OVERDRIVE_FUZZ_OP(name, arity, 1, group, {__VA_ARGS__}, __VA_ARGS__)
#define TWO(name, arity, group, ...) OVERDRIVE_FUZZ_OP(name, arity, 2, group, (__VA_ARGS__), __VA_ARGS__)

}  // namespace overdrive::fuzz
