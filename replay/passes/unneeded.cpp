// Steps that nothing needs: their results are neither read by a step that is needed, nor live on. A step that
// may throw, draws random numbers, tells the program something, or writes what lives on is needed.
#include "replay/passes/operator_kind.h"
#include "replay/passes/passes.h"
#include "replay/record/operator_writes.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

class Needs {
 public:
  Needs(const Program& program, const KeepsOperator& keeps, const Passes& passes)
      : program_(program),
        keeps_(keeps),
        passes_(passes),
        read_(program.memories.size()),
        found_(program.operators.size()) {}

  // From the last operator to the first, until nothing is added: a backward of a part may run again, so that
  // what its later operators leave is there for its earlier ones.
  std::vector<bool> find() {
    for (bool again = true; again;) {
      again = false;
      for (size_t i = program_.operators.size(); i-- > 0;) {
        if (found_[i] || !is_candidate(i) || !is_needed(i)) continue;
        found_[i] = again = true;
        note_reads(program_.operators[i]);
      }
    }
    return std::move(found_);
  }

 private:
  bool is_candidate(size_t op) const {
    const Fate fate = passes_.fates[op];
    return !program_.operators[op].vanishes && (fate == Fate::kRuns || fate == Fate::kOnce);
  }

  bool is_needed(size_t op) const {
    const Operator& each = program_.operators[op];
    if (keeps_(op) || is_random(each) || may_throw_on_data(program_, each)) return true;
    const auto is_wanted = [&](int memory) {
      return !is_passing(program_, memory) || read_[passes_.lies_in[memory]];
    };
    bool any = false;
    for (const int memory : each.writes) {
      any = true;
      if (is_wanted(memory)) return true;
    }
    for (const Argument& out : each.out) {
      for (const int value : out.values) {
        any |= value >= 0;
        if (value >= 0 && is_wanted(program_.values[value].memory)) return true;
      }
    }
    return !any;
  }

  void note_reads(const Operator& op) {
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (!reads_values(op.name, i)) continue;
      for (const int value : op.in[i].values) {
        if (value >= 0) read_[passes_.lies_in[program_.values[value].memory]] = true;
      }
    }
  }

  const Program& program_;
  const KeepsOperator& keeps_;
  const Passes& passes_;
  // Of each memory: whether a needed operator reads it.
  std::vector<bool> read_;
  std::vector<bool> found_;
};

}  // namespace

void find_unneeded(const Program& program, const KeepsOperator& keeps, Passes& passes) {
  const std::vector<bool> needed = Needs(program, keeps, passes).find();
  for (size_t i = 0; i < needed.size(); ++i) {
    const bool there = passes.fates[i] == Fate::kRuns || passes.fates[i] == Fate::kOnce;
    if (there && !needed[i] && !program.operators[i].vanishes) passes.fates[i] = Fate::kUnneeded;
  }
}

}  // namespace overdrive::replay
