// What a replay leaves out of a recorded step, and what it makes only once. A function of the program, made
// before the program is bound; a plain value, any thread. The program stays as it was recorded: who compares
// two recordings, or names an operator, sees all of them.
#pragma once

#include "replay/record/program.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace overdrive::replay {

enum class Fate : uint8_t {
  kRuns,      // in every replay; views, which vanish, count as this
  kTwin,      // another operator before it has the same result, and its result stands for this one's
  kOnce,      // made when the program is bound: nothing but constants goes into it
  kUnneeded,  // nobody reads its result
};

// Whether an operator must stay in every replay as it was recorded: its numbers may be others in the next one.
using KeepsOperator = std::function<bool(size_t op)>;

struct Passes {
  // Of each operator.
  std::vector<Fate> fates;
  // Of a twin: the operator that has its result.
  std::vector<int> twin_of;
  // Of each memory: the one that its values lie in, as a rule itself.
  std::vector<int> lies_in;
  // Operators whose result lies where an operand was.
  size_t in_place = 0;
  // Of each memory: whether its bytes are the same in every replay and are made at binding.
  std::vector<bool> constant;
  // Whether steps may run at the same time: memory is then planned so that few of them wait for each other.
  bool for_lanes = false;

  // Every operator runs.
  static Passes none(const Program& program);

  bool runs(size_t op) const { return fates[op] == Fate::kRuns; }
  size_t count(Fate fate) const;
  // Whether values of other memories lie in this one.
  bool stands_for_others(int memory) const;
  // Whether an operator that runs, also once, or a result touches each memory.
  std::vector<bool> used(const Program& program) const;
  // Of each memory: the last operator before which it must keep its bytes, also for those that lie in it.
  std::vector<int> last_uses(const Program& program) const;
};

// All passes in their order.
Passes passes_of(const Program& program, const KeepsOperator& keeps);

// The passes. Each sees what those before it found.
void find_twins(const Program& program, const KeepsOperator& keeps, Passes& passes);
void find_constants(const Program& program, const KeepsOperator& keeps, Passes& passes);
void find_unneeded(const Program& program, const KeepsOperator& keeps, Passes& passes);
void put_in_place(const Program& program, Passes& passes);

}  // namespace overdrive::replay
