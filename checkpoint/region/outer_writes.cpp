#include "checkpoint/region/outer_writes.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/operators/keys.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

namespace overdrive::checkpoint {

namespace {

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Operators of this file's own, which nobody watches: no gradient, no version, no other layer.
class Aside {
 public:
  Aside() = default;

 private:
  const c10::InferenceMode no_inference_{false};
  const at::AutoDispatchBelowADInplaceOrView below_;
  const c10::impl::ExcludeDispatchKeyGuard no_layers_{
      c10::DispatchKeySet({engine::keys::kWrites, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode})};
  const at::DisableRecordFunctionGuard no_callbacks_;
};

at::Tensor bytes_of(const c10::Storage& storage) {
  const c10::DispatchKey key = c10::computeDispatchKey(at::kByte, at::kStrided, storage.device());
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key),
                                                              caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes())});
  return bytes;
}

void restore(const c10::Storage& storage, const OuterValue& value) {
  const Aside aside;
  // Memory that the function has made larger or smaller stays as it is. No operator on the CPU, because an
  // operator may fail for want of memory.
  if (static_cast<int64_t>(storage.nbytes()) == value.bytes.numel()) {
    if (storage.device().is_cpu()) {
      if (storage.nbytes() != 0)
        std::memcpy(storage.mutable_data(), value.bytes.const_data_ptr(), storage.nbytes());
    } else {
      bytes_of(storage).copy_(value.bytes);
    }
  }
  // The first version noted is the oldest.
  for (auto noted = value.versions.rbegin(); noted != value.versions.rend(); ++noted) {
    c10::VariableVersion(noted->first).set_version(noted->second);
  }
}

// The storages that recomputations under way have written to, and their values before the first of these came.
class UnderWay {
 public:
  static UnderWay& get() {
    static base::NoDestructor<UnderWay> all;
    return *all;
  }

  // The value of now. Operators of LibTorch alone run under the lock.
  OuterValue enter(const c10::Storage& storage) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const Aside aside;
    OuterValue now{storage, bytes_of(storage).clone(), {}};
    First& first = first_[storage.unsafeGetStorageImpl()];
    if (first.users++ == 0) first.value = now;
    return now;
  }

  void note_version(OuterValue& value, const c10::VariableVersion& version) OVERDRIVE_EXCLUDES(mutex_) {
    value.versions.emplace_back(version, version.current_version());
    const base::MutexLock lock(mutex_);
    first_.at(value.storage.unsafeGetStorageImpl()).value.versions.push_back(value.versions.back());
  }

  // The lock keeps the copies of two recomputations apart.
  void put_back(const OuterValue& value) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    restore(value.storage, value);
  }

  // Back to the value that enter() gave; for the last one to leave, to that of the first one to come.
  void leave(const OuterValue& value) noexcept OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const auto found = first_.find(value.storage.unsafeGetStorageImpl());
    const bool is_last = --found->second.users == 0;
    try {
      restore(value.storage, is_last ? found->second.value : value);
    } catch (const std::exception&) {  // of a device that is broken, and will say so
    }
    if (is_last) first_.erase(found);
  }

 private:
  friend class base::NoDestructor<UnderWay>;
  struct First {
    int users = 0;
    OuterValue value{};
  };

  base::ProcessMutex mutex_{"writes outside of a region"};
  std::map<const c10::StorageImpl*, First> first_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace

bool OuterWrites::have(const c10::StorageImpl* storage) const {
  return std::any_of(storages_.begin(), storages_.end(),
                     [&](const WeakStorage& noted) { return noted._unsafe_get_target() == storage; });
}

bool OuterWrites::are_beyond(const std::vector<at::Tensor>& tensors) const {
  return std::any_of(storages_.begin(), storages_.end(), [&](const WeakStorage& noted) {
    return std::none_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
      return tensor.defined() && tensor.has_storage() && storage_of(tensor) == noted._unsafe_get_target();
    });
  });
}

void OuterWrites::Noting::will_write(const at::Tensor& tensor) {
  if (writes_.have(storage_of(tensor))) return;
  if (writes_.storages_.size() >= look_for_dead_at_) {
    forget_dead();
    look_for_dead_at_ = std::max<size_t>(64, 2 * writes_.storages_.size());
  }
  writes_.storages_.emplace_back(tensor.storage().getWeakStorageImpl());
}

// Memory that the function has made and let go of cannot be met again.
void OuterWrites::Noting::forget_dead() {
  std::erase_if(writes_.storages_, [](const WeakStorage& noted) { return noted.expired(); });
}

void OuterWrites::Undoing::will_write(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_of(tensor);
  if (!writes_.have(storage)) return;
  auto before = before_.begin();
  while (before != before_.end() && before->storage.unsafeGetStorageImpl() != storage) ++before;
  if (before == before_.end()) {
    before_.reserve(before_.size() + 1);  // nothing throws between enter() and the list that leave() is for
    before_.push_back(UnderWay::get().enter(tensor.storage()));
    before = std::prev(before_.end());
  }
  if (!tensor.is_inference()) {
    UnderWay::get().note_version(*before, torch::autograd::impl::version_counter(tensor));
  }
}

OuterWrites::Undoing::~Undoing() {
  for (const OuterValue& value : before_) UnderWay::get().leave(value);
}

bool OuterWrites::Undoing::has_touched(const c10::StorageImpl* storage) const {
  return std::any_of(before_.begin(), before_.end(),
                     [&](const OuterValue& value) { return value.storage.unsafeGetStorageImpl() == storage; });
}

OuterValues OuterWrites::Undoing::values() const {
  OuterValues values;
  for (const OuterValue& before : before_) {
    Versions now;
    for (const auto& [version, then] : before.versions) now.emplace_back(version, version.current_version());
    if (std::equal(now.begin(), now.end(), before.versions.begin(),
                   [](const auto& a, const auto& b) { return a.second == b.second; })) {
      continue;
    }
    const Aside aside;
    values.push_back({before.storage, bytes_of(before.storage).clone(), std::move(now)});
  }
  return values;
}

OuterValuesScope::OuterValuesScope(const OuterValues& values) : OuterValuesScope() {
  before_.reserve(values.size());
  for (const OuterValue& value : values) {
    before_.push_back(UnderWay::get().enter(value.storage));
    for (const auto& noted : value.versions) UnderWay::get().note_version(before_.back(), noted.first);
    UnderWay::get().put_back(value);
  }
}

OuterValuesScope::~OuterValuesScope() {
  for (const OuterValue& value : before_) UnderWay::get().leave(value);
}

at::Tensor apart_from_outer_writes(const at::Tensor& tensor) {
  if (WriteObserver::innermost() == nullptr || !tensor.defined() || !tensor.has_storage()) return tensor;
  for (const WriteObserver* observer = WriteObserver::innermost(); observer != nullptr;
       observer = observer->outer()) {
    const auto* undoing = dynamic_cast<const OuterWrites::Undoing*>(observer);
    if (undoing != nullptr && undoing->has_touched(storage_of(tensor))) return tensor.clone();
  }
  return tensor;
}

}  // namespace overdrive::checkpoint
