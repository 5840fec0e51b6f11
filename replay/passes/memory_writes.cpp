#include "replay/passes/memory_writes.h"

#include <algorithm>
#include <numeric>

namespace overdrive::replay {

namespace {

bool overlap(const Memory& a, const Memory& b) {
  const auto *x = static_cast<const char*>(a.address), *y = static_cast<const char*>(b.address);
  return x < y + b.bytes && y < x + a.bytes;
}

// An input has one buffer in a replay, under whichever names the recording knows it.
bool share_bytes(const Memory& a, const Memory& b) {
  if (a.origin != b.origin) return false;
  if (a.origin == Origin::kInput) return a.input == b.input;
  return a.origin == Origin::kOutside && overlap(a, b);
}

}  // namespace

MemoryWrites::MemoryWrites(const Program& program)
    : place_(program.memories.size()), writes_(program.memories.size()) {
  const auto& memories = program.memories;
  std::iota(place_.begin(), place_.end(), 0);
  std::vector<int> shared;
  for (size_t i = 0; i < memories.size(); ++i) {
    if (memories[i].origin == Origin::kInput || memories[i].origin == Origin::kOutside)
      shared.push_back(static_cast<int>(i));
  }
  // A memory that meets two places makes them one.
  for (size_t i = 0; i < shared.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (place_[shared[i]] == place_[shared[k]] || !share_bytes(memories[shared[i]], memories[shared[k]]))
        continue;
      const int from = place_[shared[i]], to = place_[shared[k]];
      std::replace(place_.begin(), place_.end(), from, to);
    }
  }
  for (size_t i = 0; i < memories.size(); ++i) {
    // Before the operator that reads it first.
    if (memories[i].host_filled >= 0) writes_[place_[i]].push_back(memories[i].host_filled - 1);
  }
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    if (op.vanishes) continue;
    for (const int memory : op.writes) writes_[place_[memory]].push_back(static_cast<int>(i));
    for (const Argument& out : op.out) {
      for (const int value : out.values) {
        if (value >= 0) writes_[place_[program.values[value].memory]].push_back(static_cast<int>(i));
      }
    }
  }
  for (std::vector<int>& each : writes_) std::sort(each.begin(), each.end());
}

size_t MemoryWrites::version(int memory, int op) const {
  const auto& writes = writes_[place_[memory]];
  return std::lower_bound(writes.begin(), writes.end(), op) - writes.begin();
}

bool MemoryWrites::written_between(int memory, int after, int last) const {
  const auto& writes = writes_[place_[memory]];
  const auto next = std::upper_bound(writes.begin(), writes.end(), after);
  return next != writes.end() && *next <= last;
}

}  // namespace overdrive::replay
