// Finds the pack unit that already holds a tensor's memory. One per scope of hooks; the nodes that use the
// units own them, this only knows them. Any thread.
//
// Note [When memory is the same]: an address tells nothing, it may have been freed and used again. Memory is
// the same when the storage object is (a unit holds it weakly, so that no other can take its place), it still
// points where it did, and nobody wrote to it in between: same version of the same version counter. Writing
// past the counter, through `data()`, is not seen; stock does not see it either. What LibTorch itself writes to
// in that way never comes here (may_change_unseen in tensor_kinds.h).
#pragma once

#include "engine/base/mutex.h"
#include "hooks/memory/pack_unit.h"
#include "hooks/interface/version_check.h"

#include <c10/util/SmallVector.h>

#include <memory>
#include <vector>

namespace overdrive::hooks {

class SharedUnits {
 public:
  using Units = c10::SmallVector<std::shared_ptr<PackUnit>, 2>;

  // The units that hold memory of this storage at this version and still live.
  Units of(const at::Tensor& tensor, const VersionCheck& version) OVERDRIVE_EXCLUDES(mutex_);
  // `unit` was made of `tensor`, as it is now.
  void add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit) OVERDRIVE_EXCLUDES(mutex_);

 private:
  // What tells memory from other memory at a glance. A dead unit's storage may have gone, too, and its address
  // mean another by now; a live one holds it.
  struct Memory {
    const c10::StorageImpl* storage = nullptr;
    const void* data = nullptr;
    uint32_t version = 0;
    bool operator==(const Memory&) const = default;
  };
  struct Slot {
    Memory memory;
    std::weak_ptr<PackUnit> unit;
    // Nobody will find it: dead, or of the memory of another time.
    bool is_of_no_use(const Memory& now) const {
      return (memory.storage == now.storage && memory != now) || unit.expired();
    }
  };

  static Memory memory_of(const at::Tensor& tensor, uint32_t version);
  size_t first_place(const c10::StorageImpl* storage) const OVERDRIVE_REQUIRES(mutex_);
  size_t next_place(size_t place) const OVERDRIVE_REQUIRES(mutex_) { return (place + 1) & (slots_.size() - 1); }
  void make_room() OVERDRIVE_REQUIRES(mutex_);

  base::Mutex mutex_;
  // Open addressing: those of one storage follow each other from its first place on, up to a slot that was
  // never used. A power of two, at least half of them unused.
  std::vector<Slot> slots_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t used_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::hooks
