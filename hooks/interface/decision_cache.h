// What a hook's wants() answered, by the hook's key and the looks of the tensor. Owned by the hook, so another
// hook begins with none. Any thread.
#pragma once

#include "engine/base/mutex.h"
#include "engine/base/torch_types.h"
#include "hooks/interface/saved_tensor_hooks.h"

#include <ATen/core/DimVector.h>

#include <map>
#include <optional>

namespace overdrive::hooks {

class DecisionCache {
 public:
  using Key = at::DimVector;
  static Key key_of(const at::Tensor& tensor, const SaveInfo& info, uint64_t key_of_hook);

  std::optional<bool> find(const Key& key) OVERDRIVE_EXCLUDES(mutex_);
  void note(const Key& key, bool decision) OVERDRIVE_EXCLUDES(mutex_);

 private:
  static constexpr size_t kMost = 4096;  // then it begins anew: sizes may never come again

  base::Mutex mutex_;
  std::map<Key, bool> known_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::hooks
