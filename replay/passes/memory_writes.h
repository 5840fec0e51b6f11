// When the memories of a program are written: how many operators have written to one before another operator,
// and which one is the next. A value; any thread. Two memories that the program gives one address range, as two
// tensors over one array, count as written together.
#pragma once

#include "replay/record/program.h"

#include <vector>

namespace overdrive::replay {

class MemoryWrites {
 public:
  explicit MemoryWrites(const Program& program);

  // A number for what lies there when the operator begins. Another number: perhaps other values.
  size_t version(int memory, int op) const;
  // Whether an operator after `after`, up to and with `last`, writes there.
  bool written_between(int memory, int after, int last) const;

 private:
  // The memories that share their bytes have one number.
  std::vector<int> place_;
  // Of each place, the operators that write there, in their order.
  std::vector<std::vector<int>> writes_;
};

}  // namespace overdrive::replay
