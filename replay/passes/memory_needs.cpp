#include "replay/passes/memory_needs.h"

namespace overdrive::replay {

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
}

}  // namespace overdrive::replay
