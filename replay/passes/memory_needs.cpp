#include "replay/passes/memory_needs.h"

#include "replay/passes/step_accesses.h"
#include "replay/plan/dependencies.h"

#include <algorithm>
#include <utility>

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
// How far from each other, in operators, two lifetimes may be that are kept apart.
constexpr int kFarthest = 4096;
// Of the arena: so many bytes more are no matter.
constexpr size_t kSmallArena = size_t{1} << 20;

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

// Memory that was dead for long may be anybody's: whoever waits for its last users seldom waits. So the wish is
// for lifetimes that are near each other, as near as the limit allows.
MemoryPlan MemoryNeeds::plan() const {
  MemoryPlan plain = plan_memory(lifetimes, rooms);
  if (!order_) return plain;
  const size_t limit = limit_for_lanes(plain.bytes);
  for (int near = kFarthest; near > 0; near /= 8) {
    MemoryPlan wider = plan_memory(lifetimes, rooms, apart_within(near), limit);
    if (wider.bytes <= limit) return wider;
  }
  return plain;
}

KeptApart MemoryNeeds::apart_within(int near) const {
  const int count = static_cast<int>(lifetimes.size());
  return [this, near, count](int a, int b) {
    const auto first_of = [&](int i) { return i < count ? lifetimes[i].first : rooms[i - count].first; };
    if (b < count && lifetimes[a].first > lifetimes[b].first) std::swap(a, b);
    return first_of(b) - lifetimes[a].last < near && !order_->is_over_before(passing[a], first_of(b));
  };
}

// A quarter of what the step holds, or what nobody misses.
size_t MemoryNeeds::limit_for_lanes(size_t arena) const {
  size_t held = arena;
  for (const Room& room : rooms) held += room.bytes;
  return arena + std::max(held / 4, kSmallArena);
}

}  // namespace overdrive::replay
