// Results in place: a loop over elements puts its result where an operand lies that nobody reads any more. The
// step touches less memory, and more of it is in a cache. The arithmetic of an element does not change.
#include "replay/passes/memory_needs.h"
#include "replay/passes/operator_kind.h"
#include "replay/passes/passes.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

class DyingPlaces {
 public:
  DyingPlaces(const Program& program, Passes& passes)
      : program_(program), passes_(passes), last_uses_(passes.last_uses(program)) {}

  void look_at(int op) {
    const Operator& each = program_.operators[op];
    if (each.out.size() != 1 || !each.out[0].is_tensor()) return;
    const Value& result = program_.values[each.out[0].values[0]];
    if (passes_.lies_in[result.memory] != result.memory || !may_share(result.memory)) return;
    for (const Argument& in : each.in) {
      if (!in.is_tensor() || in.values[0] < 0 || !may_hold(program_.values[in.values[0]], result, op)) continue;
      if (!is_alone(each, in.values[0])) continue;
      put(result.memory, memory_of(in.values[0]));
      return;
    }
  }

 private:
  int memory_of(int value) const { return passes_.lies_in[program_.values[value].memory]; }

  // The bytes come from operators of the replay alone.
  bool may_share(int memory) const {
    return is_passing(program_, memory) && !passes_.constant[memory] &&
           program_.memories[memory].host_filled < 0;
  }

  // The same elements in the same order, and the operator is the last one that reads them.
  bool may_hold(const Value& operand, const Value& result, int op) const {
    const int memory = passes_.lies_in[operand.memory];
    return may_share(memory) && last_uses_[memory] <= op && operand.type == result.type && !operand.wrapped &&
           operand.offset == 0 && result.offset == 0 && operand.sizes == result.sizes &&
           operand.strides == result.strides &&
           program_.memories[memory].bytes == program_.memories[result.memory].bytes &&
           result.end() <= program_.memories[memory].bytes;
  }

  // No other operand is another view of the same memory.
  bool is_alone(const Operator& op, int operand) const {
    const Value& held = program_.values[operand];
    return std::all_of(op.in.begin(), op.in.end(), [&](const Argument& in) {
      return std::all_of(in.values.begin(), in.values.end(), [&](int value) {
        if (value < 0 || memory_of(value) != memory_of(operand)) return true;
        const Value& other = program_.values[value];
        return other.offset == held.offset && other.sizes == held.sizes && other.strides == held.strides &&
               other.type == held.type;
      });
    });
  }

  void put(int memory, int into) {
    std::replace(passes_.lies_in.begin(), passes_.lies_in.end(), memory, into);
    // A result that a part's backward reads is there to the end, and so is then what it lies in.
    last_uses_[into] = std::max(last_uses_[into], last_uses_[memory]);
    ++passes_.in_place;
  }

  const Program& program_;
  Passes& passes_;
  std::vector<int> last_uses_;
};

}  // namespace

// Two lifetimes that become one may need a place that each of them would find elsewhere.
void put_in_place(const Program& program, Passes& passes) {
  const Passes before = passes;
  DyingPlaces places(program, passes);
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    if (passes.runs(i) && is_function(program, op) && is_loop_over_elements(op))
      places.look_at(static_cast<int>(i));
  }
  if (passes.in_place > 0 &&
      MemoryNeeds(program, passes).plan().bytes > MemoryNeeds(program, before).plan().bytes) {
    passes = before;
  }
}

}  // namespace overdrive::replay
