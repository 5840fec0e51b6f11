#include "hooks/memory/shared_units.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>

namespace overdrive::hooks {

SharedUnits::Memory SharedUnits::memory_of(const at::Tensor& tensor, uint32_t version) {
  const c10::StorageImpl& storage = *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return {&storage, storage.data(), version};
}

size_t SharedUnits::first_place(const c10::StorageImpl* storage) const {
  const uint64_t mixed = reinterpret_cast<uintptr_t>(storage) * 0x9E3779B97F4A7C15ULL;
  return (mixed >> 32) & (slots_.size() - 1);
}

std::shared_ptr<PackUnit> SharedUnits::holder_of(const at::Tensor& tensor,
                                                 const engine::host::VersionCheck& version,
                                                 const Geometry& place, bool lossless) {
  c10::SmallVector<std::shared_ptr<PackUnit>, 2>
      alive;  // outlives the lock: the last owner of a unit may be here
  const Memory memory = memory_of(tensor, version.saved_version());
  {
    const base::MutexLock lock(mutex_);
    if (slots_.empty()) return nullptr;
    for (size_t i = first_place(memory.storage); slots_[i].memory.storage != nullptr; i = next_place(i)) {
      if (!(slots_[i].memory == memory)) continue;  // at most kMostOfOneMemory go on
      if (std::shared_ptr<PackUnit> unit = slots_[i].unit.lock()) alive.push_back(std::move(unit));
    }
  }
  for (const auto& unit : alive) {
    const SavedMemory& held = unit->memory();
    if (held.dtype() == tensor.dtype() &&
        engine::host::same_counter(held.version().counter(), version.counter()) &&
        (lossless ? held.contains(place) : held.holds_exactly(place))) {
      return unit;
    }
  }
  return nullptr;
}

void SharedUnits::add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit) {
  const Memory memory = memory_of(tensor, unit->memory().version().saved_version());
  const base::MutexLock lock(mutex_);
  if (2 * used_ >= slots_.size()) make_room();
  size_t i = first_place(memory.storage), same = 0;
  for (; slots_[i].memory.storage != nullptr && !slots_[i].is_of_no_use(memory); i = next_place(i)) {
    if (!(slots_[i].memory == memory)) continue;
    if (++same == kMostOfOneMemory) break;
  }
  if (same == kMostOfOneMemory) {
    // Each of them in turn, so that the latest are known.
    size_t left = turn_++ % kMostOfOneMemory;
    for (i = first_place(memory.storage); !(slots_[i].memory == memory) || left-- > 0;) i = next_place(i);
  }
  used_ += slots_[i].memory.storage == nullptr;
  slots_[i] = {memory, unit};
}

void SharedUnits::make_room() {
  std::vector<Slot> alive = std::move(slots_);
  std::erase_if(alive, [](const Slot& slot) { return slot.unit.expired(); });
  slots_ = std::vector<Slot>(std::bit_ceil(std::max<size_t>(64, 4 * alive.size())));
  used_ = alive.size();
  for (Slot& slot : alive) {
    size_t i = first_place(slot.memory.storage);
    while (slots_[i].memory.storage != nullptr) i = next_place(i);
    slots_[i] = std::move(slot);
  }
}

}  // namespace overdrive::hooks
