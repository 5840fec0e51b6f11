// Finds the pack unit that already holds a tensor's memory. One per scope of hooks. The nodes that use the
// units own them; this table knows them weakly. Any thread.
//
// Note [When memory is the same]: an address proves nothing, because it may have been freed and used again.
// Memory is the same when the storage object is the same (a unit holds it weakly, so no other object takes its
// address), the storage points to the same data, and the version counter and the version are the same. Writes
// past the counter, through `data()`, are seen neither here nor by stock. Tensors that LibTorch writes to in
// this way never come here (may_change_unseen in tensor_kinds.h).
#pragma once

#include "engine/base/mutex.h"
#include "engine/host/version_check.h"
#include "hooks/memory/pack_unit.h"

#include <memory>
#include <vector>

namespace overdrive::hooks {

class SharedUnits {
 public:
  // The living unit that a tensor of this geometry and version can be cut out of, or null. Without `lossless`
  // only a unit of the same geometry.
  std::shared_ptr<PackUnit> holder_of(const at::Tensor& tensor, const engine::host::VersionCheck& version,
                                      const Geometry& place, bool lossless) OVERDRIVE_EXCLUDES(mutex_);
  // `unit` was made of `tensor`, as it is now.
  void add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit) OVERDRIVE_EXCLUDES(mutex_);

 private:
  // Windows of one memory that overlap without containing each other are units of their own. Beyond so many,
  // the latest ones are known: a search through all of them would make a save as dear as there are windows.
  static constexpr size_t kMostOfOneMemory = 64;

  // A dead unit's storage may have gone too, and its address may mean another storage by now; a living unit
  // holds it.
  struct Memory {
    const c10::StorageImpl* storage = nullptr;
    const void* data = nullptr;
    uint32_t version = 0;
    bool operator==(const Memory&) const = default;
  };
  struct Slot {
    Memory memory;
    std::weak_ptr<PackUnit> unit;
    // Nobody will find it: the unit is dead, or the memory has another version now.
    bool is_of_no_use(const Memory& now) const {
      return (memory.storage == now.storage && memory != now) || unit.expired();
    }
  };

  static Memory memory_of(const at::Tensor& tensor, uint32_t version);
  size_t first_place(const c10::StorageImpl* storage) const OVERDRIVE_REQUIRES(mutex_);
  size_t next_place(size_t place) const OVERDRIVE_REQUIRES(mutex_) { return (place + 1) & (slots_.size() - 1); }
  void make_room() OVERDRIVE_REQUIRES(mutex_);

  base::Mutex mutex_;
  // Open addressing: the slots of one storage follow each other from its first place on, up to a slot that was
  // never used. A power of two, at least half of them unused.
  std::vector<Slot> slots_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t used_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  size_t turn_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // of the units of one memory that are too many
};

}  // namespace overdrive::hooks
