#include "replay/passes/passes.h"

#include <algorithm>
#include <numeric>

namespace overdrive::replay {

Passes Passes::none(const Program& program) {
  Passes passes{.fates = std::vector<Fate>(program.operators.size(), Fate::kRuns),
                .twin_of = std::vector<int>(program.operators.size(), -1),
                .lies_in = std::vector<int>(program.memories.size()),
                .constant = std::vector<bool>(program.memories.size())};
  std::iota(passes.lies_in.begin(), passes.lies_in.end(), 0);
  return passes;
}

Passes passes_of(const Program& program, const KeepsOperator& keeps) {
  Passes passes = Passes::none(program);
  find_twins(program, keeps, passes);
  find_constants(program, keeps, passes);
  find_unneeded(program, keeps, passes);
  put_in_place(program, passes);
  return passes;
}

size_t Passes::count(Fate fate) const { return std::count(fates.begin(), fates.end(), fate); }

bool Passes::stands_for_others(int memory) const {
  for (size_t i = 0; i < lies_in.size(); ++i) {
    if (lies_in[i] == memory && static_cast<int>(i) != memory) return true;
  }
  return false;
}

std::vector<bool> Passes::used(const Program& program) const {
  std::vector<bool> used(program.memories.size());
  const auto use = [&](int value) {
    if (value >= 0) used[lies_in[program.values[value].memory]] = true;
  };
  const auto use_all = [&](const std::vector<Argument>& arguments) {
    for (const Argument& argument : arguments)
      std::for_each(argument.values.begin(), argument.values.end(), use);
  };
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    if (op.vanishes || (fates[i] != Fate::kRuns && fates[i] != Fate::kOnce)) continue;
    use_all(op.in);
    use_all(op.out);
  }
  std::for_each(program.results.begin(), program.results.end(), use);
  return used;
}

// A memory of a part's forward that stands for one of its backward is read there.
std::vector<int> Passes::last_uses(const Program& program) const {
  std::vector<int> uses(program.memories.size(), -1), ends(program.memories.size(), -1);
  for (size_t i = 0; i < uses.size(); ++i) {
    const int in = lies_in[i];
    uses[in] = std::max(uses[in], program.memories[i].last);
    ends[in] = std::max(ends[in], program.last_use(static_cast<int>(i)));
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    const int begins = program.backward_begins;
    const bool crosses = program.is_part() && program.memories[i].first < begins && uses[i] >= begins;
    if (crosses) ends[i] = static_cast<int>(program.operators.size());
  }
  return ends;
}

}  // namespace overdrive::replay
