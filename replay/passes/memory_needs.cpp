#include "replay/passes/memory_needs.h"

#include "replay/passes/step_accesses.h"
#include "replay/plan/dependencies.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

// Memory without a place yet has an address that no other memory has. An input has one buffer.
AddressRange range_before_plan(const Program& program, const Passes& passes, int memory) {
  constexpr uintptr_t kMade = uintptr_t{1} << 62, kInputs = uintptr_t{1} << 61;
  const int lies_in = passes.lies_in[memory];
  const Memory& each = program.memories[lies_in];
  if (each.origin == Origin::kOutside) {
    const auto begin = reinterpret_cast<uintptr_t>(each.address);
    return {begin, begin + each.bytes};
  }
  const bool is_input = each.origin == Origin::kInput;
  const uintptr_t begin = is_input ? kInputs + each.input : kMade + lies_in;
  return {begin, begin + 1};
}

// A program with more operators is planned as for one lane: the table of who comes before whom grows by the
// square.
constexpr size_t kMostOperators = 8192;

}  // namespace

class MemoryNeeds::Order {
 public:
  Order(const Program& program, const Passes& passes)
      : words_((program.operators.size() + 63) / 64), before_(program.operators.size()) {
    users_.resize(program.memories.size());
    std::vector<Touched> touched(program.operators.size());
    for (size_t i = 0; i < touched.size(); ++i) {
      if (program.operators[i].vanishes || !passes.runs(i)) continue;
      const StepAccesses accesses = accesses_of(program, i);
      touched[i].alone = accesses.is_foreign;
      for (const int memory : accesses.reads)
        touched[i].reads.push_back(range_before_plan(program, passes, memory));
      for (const int memory : accesses.writes)
        touched[i].writes.push_back(range_before_plan(program, passes, memory));
      for (const auto* memories : {&accesses.reads, &accesses.writes}) {
        for (const int memory : *memories) users_[passes.lies_in[memory]].push_back(static_cast<int>(i));
      }
    }
    const StepsBefore direct = steps_before(touched);
    for (size_t i = 0; i < direct.size(); ++i) {
      before_[i].resize(words_);
      for (const int other : direct[i]) {
        before_[i][other / 64] |= uint64_t{1} << (other % 64);
        for (size_t k = 0; k < words_; ++k) before_[i][k] |= before_[other][k];
      }
    }
  }

  // Whether whoever begins with the other memory waits for all that use the first one, as it is.
  bool is_over_before(int memory, int op) const {
    return std::all_of(users_[memory].begin(), users_[memory].end(),
                       [&](int user) { return (before_[op][user / 64] >> (user % 64) & 1) != 0; });
  }

 private:
  const size_t words_;
  // Of each operator, as bits: all that come before it.
  std::vector<std::vector<uint64_t>> before_;
  // Of each memory: the operators that use it.
  std::vector<std::vector<int>> users_;
};

MemoryNeeds::MemoryNeeds(const Program& program, const Passes& passes) {
  const std::vector<int> last_uses = passes.last_uses(program);
  const std::vector<bool> used = passes.used(program);
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin != Origin::kMade || passes.constant[i]) continue;
    if (memory.lives) {
      if (reinterpret_cast<uintptr_t>(memory.address) % kArenaAlignment != 0) continue;
      rooms.push_back({memory.first, memory.bytes});
      lasting.push_back(static_cast<int>(i));
    } else if (used[i] && passes.lies_in[i] == static_cast<int>(i)) {
      lifetimes.push_back({memory.first, last_uses[i], memory.bytes});
      passing.push_back(static_cast<int>(i));
    }
  }
  if (passes.for_lanes && program.operators.size() <= kMostOperators)
    order_ = std::make_shared<const Order>(program, passes);
}

// A quarter more memory at most, for steps that then need not wait for each other.
MemoryPlan MemoryNeeds::plan() const {
  MemoryPlan plain = plan_memory(lifetimes, rooms);
  if (!order_) return plain;
  const int count = static_cast<int>(lifetimes.size());
  const auto apart = [&](int a, int b) {
    if (b >= count) return !order_->is_over_before(passing[a], rooms[b - count].first);
    if (lifetimes[a].first > lifetimes[b].first) std::swap(a, b);
    return !order_->is_over_before(passing[a], lifetimes[b].first);
  };
  const size_t limit = plain.bytes + plain.bytes / 4;
  MemoryPlan wider = plan_memory(lifetimes, rooms, apart, limit);
  return wider.bytes <= limit ? wider : plain;
}

}  // namespace overdrive::replay
