// Which hooks a leaf has: those on the tensor and those on the node that accumulates its gradient. A value,
// made and compared by the thread that calls the step. Sees that hooks were added or taken away, and not what a
// hook does.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>

namespace overdrive::replay {

struct HookLooks {
  // Hooks of C++ stand in one list that only grows; an entry that was removed is empty.
  const void* list = nullptr;
  size_t listed = 0;
  size_t removed = 0;
  // All others by their addresses.
  uint64_t addresses = 0;

  static HookLooks of(const c10::TensorImpl& leaf);
  bool operator==(const HookLooks&) const = default;
};

}  // namespace overdrive::replay
