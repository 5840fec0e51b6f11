#include "hooks/memory/pending.h"

#include "engine/base/no_destructor.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace overdrive::hooks {

void Pending::add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit) {
  const c10::Storage& storage = tensor.storage();
  const base::MutexLock lock(mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
    return one.storage._unsafe_get_target() == storage.unsafeGetStorageImpl();
  });
  if (found != waiting_.end()) {
    found->units.push_back(unit);
  } else {
    waiting_.push_back({storage.getWeakStorageImpl(), static_cast<int64_t>(storage.nbytes()), {unit}});
  }
}

void Pending::look(const SaveInfo& now) {
  std::exception_ptr error;
  for (const auto& unit : take_due(now)) {
    try {
      unit->pack_waiting();
    } catch (...) {
      if (base::thread_is_ending()) throw;
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void Pending::move_units(Waiting& from, const SaveInfo& now, Units& to, Units& in_use) {
  std::erase_if(from.units, [&](const auto& weak) {
    auto unit = weak.lock();
    if (unit == nullptr) return true;
    const SaveInfo& info = unit->memory().info();
    const bool is_in_use = info.thread == now.thread && info.sequence_nr == now.sequence_nr;
    (is_in_use ? in_use : to).push_back(std::move(unit));
    return !is_in_use;
  });
}

Pending::Units Pending::take_due(const SaveInfo& now) {
  Units due, in_use;  // outlive the lock: the last owner of a unit may be here
  const base::MutexLock lock(mutex_);
  int64_t bytes = 0, tensors = 0;
  for (Waiting& one : waiting_) {
    std::erase_if(one.units, [](const auto& unit) { return unit.expired(); });
    if (one.storage.use_count() <= one.units.size()) move_units(one, now, due, in_use);
    if (one.units.empty()) continue;
    bytes += one.bytes;
    tensors += static_cast<int64_t>(one.units.size());
  }
  for (Waiting& one : waiting_) {
    if (tensors <= schedule_.window_tensors && bytes <= schedule_.window_bytes) break;
    if (one.units.empty()) continue;
    tensors -= static_cast<int64_t>(one.units.size());
    move_units(one, now, due, in_use);
    tensors += static_cast<int64_t>(one.units.size());
    if (one.units.empty()) bytes -= one.bytes;
  }
  std::erase_if(waiting_, [](const Waiting& one) { return one.units.empty(); });
  return due;
}

}  // namespace overdrive::hooks
