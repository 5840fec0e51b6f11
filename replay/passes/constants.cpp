// Constants once: an operator into which nothing but numbers of the program goes has the same result in every
// replay. It is made at binding, in memory of its own, when nobody writes there.
#include "replay/passes/operator_kind.h"
#include "replay/passes/passes.h"
#include "replay/record/operator_writes.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

// A larger one would keep memory that the step has for a moment.
constexpr size_t kLargestConstant = size_t{1} << 20;

bool may_be_constant(const Program& program, int memory) {
  const Memory& each = program.memories[memory];
  return is_passing(program, memory) && !each.written && each.bytes <= kLargestConstant;
}

class ConstantSearch {
 public:
  ConstantSearch(const Program& program, Passes& passes) : program_(program), passes_(passes) {
    for (size_t i = 0; i < program.memories.size(); ++i) {
      const bool filled = program.memories[i].host_filled >= 0 && may_be_constant(program, static_cast<int>(i));
      if (filled) passes_.constant[i] = true;
    }
  }

  void look_at(size_t op) {
    const Operator& each = program_.operators[op];
    if (!is_function(program_, each) || may_throw_on_data(program_, each)) return;
    for (size_t i = 0; i < each.in.size(); ++i) {
      if (reads_values(each.name, i) && !is_constant(each.in[i])) return;
    }
    for (const Argument& out : each.out) {
      if (out.is_tensor() && !may_be_constant(program_, program_.values[out.values[0]].memory)) return;
    }
    for (const Argument& out : each.out) {
      if (out.is_tensor()) passes_.constant[program_.values[out.values[0]].memory] = true;
    }
    passes_.fates[op] = Fate::kOnce;
  }

 private:
  bool is_constant(const Argument& argument) const {
    return std::all_of(argument.values.begin(), argument.values.end(), [&](int value) {
      if (value < 0) return true;
      const int memory = passes_.lies_in[program_.values[value].memory];
      const Memory& read = program_.memories[memory];
      return (read.origin == Origin::kConstant && read.number < 0) || passes_.constant[memory];
    });
  }

  const Program& program_;
  Passes& passes_;
};

}  // namespace

void find_constants(const Program& program, const KeepsOperator& keeps, Passes& passes) {
  ConstantSearch search(program, passes);
  for (size_t i = 0; i < program.operators.size(); ++i) {
    if (passes.runs(i) && !keeps(i)) search.look_at(i);
  }
}

}  // namespace overdrive::replay
