#include "hooks/shared_units.h"

#include <algorithm>

namespace overdrive::hooks {

SharedUnits::Memory::Memory(const at::Tensor& tensor, const VersionCheck& at_version)
    : storage(tensor.storage().getWeakStorageImpl()),
      data(tensor.storage().data()),
      bytes(tensor.storage().nbytes()),
      version(at_version) {}

bool SharedUnits::Memory::is_that_of(const at::Tensor& tensor, const VersionCheck& other) const {
  return version.saved_version() == other.saved_version() && same_counter(version.counter(), other.counter()) &&
         data == tensor.storage().data() && bytes == tensor.storage().nbytes();
}

SharedUnits::Units SharedUnits::of(const at::Tensor& tensor, const VersionCheck& version) {
  Units alive;
  base::MutexLock lock(mutex_);
  const auto found = known_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == known_.end() || !found->second.is_that_of(tensor, version)) return alive;
  auto& units = found->second.units;
  std::erase_if(units, [&](const std::weak_ptr<PackUnit>& weak) {
    std::shared_ptr<PackUnit> unit = weak.lock();
    if (unit == nullptr) return true;
    alive.push_back(std::move(unit));
    return false;
  });
  return alive;
}

void SharedUnits::add(const at::Tensor& tensor, const VersionCheck& version,
                      const std::shared_ptr<PackUnit>& unit) {
  base::MutexLock lock(mutex_);
  const c10::StorageImpl* key = tensor.storage().unsafeGetStorageImpl();
  auto [place, is_new] = known_.try_emplace(key, tensor, version);
  if (!is_new && !place->second.is_that_of(tensor, version)) place->second = Memory(tensor, version);
  place->second.units.push_back(unit);
  if (known_.size() >= look_for_dead_at_) forget_dead();
}

void SharedUnits::forget_dead() {
  std::erase_if(known_, [](const auto& entry) {
    const auto& units = entry.second.units;
    return std::all_of(units.begin(), units.end(), [](const auto& unit) { return unit.expired(); });
  });
  look_for_dead_at_ = std::max<size_t>(64, 2 * known_.size());
}

}  // namespace overdrive::hooks
