#include "forward_ad/levels/level.h"

#include <c10/util/Exception.h>

#include <utility>

namespace overdrive::forward_ad {

LevelLayer::~LevelLayer() = default;
TangentStore::~TangentStore() = default;

ForwardADLevel::ForwardADLevel(uint64_t idx) : idx_(idx) {}

ForwardADLevel::~ForwardADLevel() { release(); }

bool ForwardADLevel::insert(const std::shared_ptr<TangentStore>& grad) {
  base::MutexLock lock(mutex_);
  if (released_) return false;
  grads_.insert(grad);
  return true;
}

void ForwardADLevel::erase(const std::shared_ptr<TangentStore>& grad) {
  base::MutexLock lock(mutex_);
  grads_.erase(grad);
}

size_t ForwardADLevel::grad_count() const {
  base::MutexLock lock(mutex_);
  return grads_.size();
}

void ForwardADLevel::release() {
  std::unordered_set<std::shared_ptr<TangentStore>> grads;
  {
    base::MutexLock lock(mutex_);
    released_ = true;
    grads.swap(grads_);
  }
  for (const auto& grad : grads) grad->drop(idx_);
}

void ForwardADLevel::attach(std::unique_ptr<LevelLayer> layer) {
  TORCH_INTERNAL_ASSERT(owned_layer_ == nullptr, "level ", idx_, " has a layer already");
  owned_layer_ = std::move(layer);
  layer_.store(owned_layer_.get(), std::memory_order_release);
}

}  // namespace overdrive::forward_ad
