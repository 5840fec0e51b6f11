// The tangents of one tensor, by level. Owned by the one object that holds the tensor's derivative (its
// autograd data), which calls clear() when it goes away; levels hold second references. Any thread may call
// anything at any time, except that clear() is the owner's last call. Does not know its tensor, nor layers.
#pragma once

#include "engine/base/export.h"
#include "engine/base/mutex.h"
#include "forward_ad/levels/level.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace overdrive::forward_ad {
// The tangents of one tensor, by level.
class OVERDRIVE_API ForwardGrad final : public TangentStore, public std::enable_shared_from_this<ForwardGrad> {
 public:
  ForwardGrad() = default;
  ForwardGrad(const ForwardGrad&) = delete;
  ForwardGrad& operator=(const ForwardGrad&) = delete;

  // Gives the tensor a tangent on an open level and registers it there. An existing tangent stays: in-place
  // operators write into it, nobody replaces it.
  void set_value(const at::Tensor& tangent, uint64_t level) OVERDRIVE_EXCLUDES(mutex_);

  // The tangent, or an undefined tensor when there is none.
  at::Tensor value(uint64_t level) const OVERDRIVE_EXCLUDES(mutex_);

  // As value(), without a new reference: good until reset(), clear() or the level's release. For callers that
  // must return a reference, as autograd data must.
  const at::Tensor& peek(uint64_t level) const OVERDRIVE_EXCLUDES(mutex_);

  bool contains(uint64_t level) const OVERDRIVE_EXCLUDES(mutex_);   // Whether it has a tangent there.
  bool empty() const OVERDRIVE_EXCLUDES(mutex_);                    // Whether it has no tangent at all.
  std::vector<uint64_t> levels() const OVERDRIVE_EXCLUDES(mutex_);  // In no order.

  // Takes the tangent of one level away; an error when there is none. With update_level false the level itself
  // asks, and is not told.
  void reset(uint64_t level, bool update_level = true) OVERDRIVE_EXCLUDES(mutex_);

  // Takes all tangents away and leaves every level. Only the owner calls it, when nobody else can set or read
  // any more; levels may be releasing at the same moment.
  void clear() OVERDRIVE_EXCLUDES(mutex_);

  // The undefined tensor that peek() returns.
  static const at::Tensor& undef_grad();

  void drop(uint64_t level) override OVERDRIVE_EXCLUDES(mutex_);  // As reset(), for the level's release.

 private:
  at::Tensor take(uint64_t level) OVERDRIVE_EXCLUDES(mutex_);

  mutable base::Mutex mutex_;
  std::unordered_map<uint64_t, at::Tensor> tangents_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::forward_ad
