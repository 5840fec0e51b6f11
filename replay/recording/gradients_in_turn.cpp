#include "replay/recording/gradients_in_turn.h"

#include <c10/util/hash.h>

#include <unordered_set>

namespace overdrive::replay {

namespace {

// Of models that come and go.
constexpr int kMostTimes = 4;

}  // namespace

bool GradientsInTurn::learn(const std::vector<WeakTensor>& leaves) {
  std::erase_if(leaves_, [](const WeakTensor& each) { return each.expired(); });
  std::unordered_set<const c10::TensorImpl*> known;
  for (const WeakTensor& each : leaves_) known.insert(each._unsafe_get_target());
  std::vector<WeakTensor> others;
  for (const WeakTensor& leaf : leaves) {
    if (known.insert(leaf._unsafe_get_target()).second) others.push_back(leaf);
  }
  if (others.empty() || times_ == kMostTimes) return false;
  leaves_.insert(leaves_.end(), others.begin(), others.end());
  ++times_;
  return true;
}

void GradientsInTurn::look() {
  size_t pattern = 0;
  for (const WeakTensor& leaf : leaves_) {
    const bool has_one = !leaf.expired() && leaf._unsafe_get_target()->grad().defined();
    pattern = c10::hash_combine(pattern, has_one ? 1 : 2);
  }
  pattern_ = pattern;
}

}  // namespace overdrive::replay
