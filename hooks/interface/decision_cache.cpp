#include "hooks/interface/decision_cache.h"

namespace overdrive::hooks {

DecisionCache::Key DecisionCache::key_of(const at::Tensor& tensor, const SaveInfo& info, uint64_t key_of_hook) {
  Key key(tensor.sizes());
  key.push_back(info.bytes);  // fewer where elements are repeated
  key.push_back(static_cast<int64_t>(key_of_hook));
  key.push_back(static_cast<int64_t>(info.dtype) << 32 | static_cast<int64_t>(tensor.device().type()) << 16 |
                static_cast<int64_t>(tensor.device().index() + 1) << 1 | static_cast<int64_t>(info.parameter));
  return key;
}

std::optional<bool> DecisionCache::find(const Key& key) {
  const base::MutexLock lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void DecisionCache::note(const Key& key, bool decision) {
  const base::MutexLock lock(mutex_);
  if (known_.size() >= kMost) known_.clear();
  known_[key] = decision;
}

}  // namespace overdrive::hooks
