#include "forward_ad/levels/level.h"

#include "forward_ad/levels/level_registry.h"

#include <c10/util/Exception.h>

#include <utility>

namespace overdrive::forward_ad {

LevelLayer::~LevelLayer() = default;

ForwardADLevel::ForwardADLevel(uint64_t idx) : idx_(idx) {}

ForwardADLevel::~ForwardADLevel() { release(); }

uint64_t ForwardADLevel::get_next_idx() { return LevelRegistry::current().get_next_idx(); }

void ForwardADLevel::release_idx(uint64_t idx) { LevelRegistry::current().release_idx(idx); }

std::shared_ptr<ForwardADLevel> ForwardADLevel::get_by_idx(uint64_t idx) {
  return LevelRegistry::current().get_by_idx(idx);
}

std::shared_ptr<ForwardADLevel> ForwardADLevel::try_get_by_idx(uint64_t idx) {
  return LevelRegistry::current().try_get_by_idx(idx);
}

bool ForwardADLevel::insert(const std::shared_ptr<ForwardGrad>& grad) {
  base::MutexLock lock(mutex_);
  if (released_) return false;
  grads_.insert(grad);
  return true;
}

void ForwardADLevel::erase(const std::shared_ptr<ForwardGrad>& grad) {
  base::MutexLock lock(mutex_);
  grads_.erase(grad);
}

size_t ForwardADLevel::grad_count() const {
  base::MutexLock lock(mutex_);
  return grads_.size();
}

void ForwardADLevel::release() {
  std::unordered_set<std::shared_ptr<ForwardGrad>> grads;
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
