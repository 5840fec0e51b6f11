#include "engine/node/borrowed_storage.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace overdrive::engine {
namespace {

thread_local BorrowedStorage* innermost = nullptr;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

std::atomic<bool> BorrowedStorage::ever_used{false};

BorrowedStorage::BorrowedStorage(const base::variable_list& given) : around_(std::exchange(innermost, this)) {
  for (const at::Tensor& gradient : given) {
    if (const c10::StorageImpl* storage = storage_of(gradient)) given_.push_back(storage);
  }
}
BorrowedStorage::~BorrowedStorage() { innermost = around_; }

void BorrowedStorage::note(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_of(tensor);
  if (innermost == nullptr || storage == nullptr) return;
  const Storages& given = innermost->given_;
  if (std::find(given.begin(), given.end(), storage) == given.end()) innermost->borrowed_.push_back(storage);
}

void BorrowedStorage::keep_out_of(base::variable_list& gradients) const {
  // In grad mode nobody takes a gradient over.
  if (borrowed_.empty() || c10::GradMode::is_enabled()) return;
  for (at::Tensor& gradient : gradients) {
    const c10::StorageImpl* storage = storage_of(gradient);
    if (storage == nullptr || std::find(borrowed_.begin(), borrowed_.end(), storage) == borrowed_.end())
      continue;
    gradient = gradient.clone();
  }
}

}  // namespace overdrive::engine
