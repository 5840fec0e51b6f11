// Finds the pack unit that already holds a tensor's memory. One per scope of hooks; the nodes that use the
// units own them, this only knows them. Any thread.
//
// Note [When memory is the same]: an address tells nothing, it may have been freed and used again. Memory is
// the same when the storage object is (held weakly, so that no other can take its place), it still points
// where it did, and nobody wrote to it in between: same version of the same version counter. Writing past
// the counter, through `data()`, is not seen; stock does not see it either.
#pragma once

#include "engine/base/mutex.h"
#include "hooks/pack_unit.h"
#include "hooks/version_check.h"

#include <memory>
#include <unordered_map>
#include <vector>

namespace overdrive::hooks {

class SharedUnits {
 public:
  using Units = std::vector<std::shared_ptr<PackUnit>>;

  // The units that hold memory of this storage at this version and still live.
  Units of(const at::Tensor& tensor, const VersionCheck& version) OVERDRIVE_EXCLUDES(mutex_);
  void add(const at::Tensor& tensor, const VersionCheck& version, const std::shared_ptr<PackUnit>& unit)
      OVERDRIVE_EXCLUDES(mutex_);

 private:
  struct Memory {
    explicit Memory(const at::Tensor& tensor, const VersionCheck& version);
    bool is_that_of(const at::Tensor& tensor, const VersionCheck& version) const;

    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* data;
    size_t bytes;
    VersionCheck version;
    std::vector<std::weak_ptr<PackUnit>> units;
  };

  void forget_dead() OVERDRIVE_REQUIRES(mutex_);

  base::Mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, Memory> known_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t look_for_dead_at_ OVERDRIVE_GUARDED_BY(mutex_) = 64;
};

}  // namespace overdrive::hooks
