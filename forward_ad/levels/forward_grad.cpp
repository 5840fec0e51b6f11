#include "forward_ad/levels/forward_grad.h"

#include "engine/base/no_destructor.h"
#include "forward_ad/levels/level_registry.h"

#include <utility>

namespace overdrive::forward_ad {

void ForwardGrad::set_value(const at::Tensor& tangent, uint64_t level) {
  auto open_level = LevelRegistry::get_by_idx(level);
  {
    base::MutexLock lock(mutex_);
    if (!tangents_.emplace(level, tangent).second) return;
  }
  // Stored first, registered second: see Note [Lifetime of a level] in level.h.
  if (!open_level->insert(shared_from_this())) {
    drop(level);
    TORCH_CHECK(false, "Forward AD level ", level, " was released while a tangent was being set on it.");
  }
}

at::Tensor ForwardGrad::value(uint64_t level) const {
  base::MutexLock lock(mutex_);
  auto found = tangents_.find(level);
  return found == tangents_.end() ? at::Tensor() : found->second;
}

const at::Tensor& ForwardGrad::peek(uint64_t level) const {
  base::MutexLock lock(mutex_);
  auto found = tangents_.find(level);
  return found == tangents_.end() ? undef_grad() : found->second;
}

bool ForwardGrad::contains(uint64_t level) const {
  base::MutexLock lock(mutex_);
  return tangents_.contains(level);
}

bool ForwardGrad::empty() const {
  base::MutexLock lock(mutex_);
  return tangents_.empty();
}

std::vector<uint64_t> ForwardGrad::levels() const {
  base::MutexLock lock(mutex_);
  std::vector<uint64_t> levels;
  levels.reserve(tangents_.size());
  for (const auto& [level, tangent] : tangents_) levels.push_back(level);
  return levels;
}

void ForwardGrad::reset(uint64_t level, bool update_level) {
  if (update_level) LevelRegistry::get_by_idx(level)->erase(shared_from_this());
  at::Tensor tangent = take(level);  // destroyed here, outside the lock
  TORCH_CHECK(tangent.defined(), "Resetting a non-existent level.");
}

void ForwardGrad::clear() {
  std::unordered_map<uint64_t, at::Tensor> tangents;
  {
    base::MutexLock lock(mutex_);
    tangents.swap(tangents_);
  }
  if (tangents.empty()) return;
  auto self = shared_from_this();
  for (const auto& [level, tangent] : tangents) {
    // The level may be gone already, or go right now: then it has let go of us.
    if (auto open_level = LevelRegistry::try_get_by_idx(level)) open_level->erase(self);
  }
}

const at::Tensor& ForwardGrad::undef_grad() {
  static base::NoDestructor<at::Tensor> undefined;
  return *undefined;
}

void ForwardGrad::drop(uint64_t level) { take(level); }

at::Tensor ForwardGrad::take(uint64_t level) {
  base::MutexLock lock(mutex_);
  auto found = tangents_.find(level);
  if (found == tangents_.end()) return {};
  at::Tensor tangent = std::move(found->second);
  tangents_.erase(found);
  return tangent;
}

}  // namespace overdrive::forward_ad
