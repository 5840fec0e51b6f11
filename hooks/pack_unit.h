// A piece of memory that was given to a hook once, on behalf of one saved tensor or of several that share
// it. Owned by the saved tensors. Several nodes on several threads may fetch at once. Knows nothing of
// versions or parameters; whoever saves decides what a unit is.
#pragma once

#include "engine/base/mutex.h"
#include "hooks/geometry.h"
#include "hooks/saved_tensor_hooks.h"

#include <memory>

namespace overdrive::hooks {

class PackUnit {
 public:
  // Gives `source` to the hook: a tensor without history, conjugation or negation. Throws what pack() throws,
  // and when pack() changed its input.
  PackUnit(HooksPtr hooks, const at::Tensor& source, const SaveInfo& info);

  const Geometry& geometry() const { return geometry_; }
  const SaveInfo& info() const { return info_; }
  caffe2::TypeMeta dtype() const { return dtype_; }

  // Whether a tensor of this geometry can be cut out of what fetch() gives.
  bool contains(const Geometry& other) const;
  bool overlaps(const Geometry& other) const;
  bool holds_exactly(const Geometry& other) const;
  // An empty tensor of the packed one's type, for messages.
  at::Tensor looks() const;

  // The packed memory as it was, cut to the geometry of a saved tensor and with its version counter.
  at::Tensor fetch(const Geometry& wanted, const c10::VariableVersion& counter, base::Node* node)
      OVERDRIVE_EXCLUDES(mutex_);

  // From now on there are several owners: what is fetched for one is given to the others for as long as it
  // is alive.
  void share() OVERDRIVE_EXCLUDES(mutex_);
  // A larger unit has packed this one's memory too. What was packed here goes.
  void replace_by(std::shared_ptr<PackUnit> larger) OVERDRIVE_EXCLUDES(mutex_);

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Contents;

  at::Tensor unpack(Contents& contents, base::Node* node);
  at::Tensor cut(at::Tensor whole, const Geometry& wanted, const c10::VariableVersion& counter) const;
  // What was fetched before, if somebody still has it.
  at::Tensor still_alive(const c10::VariableVersion& counter) OVERDRIVE_REQUIRES(mutex_);

  // Fixed once packed.
  const HooksPtr hooks_;
  const Geometry geometry_;
  const SaveInfo info_;
  const caffe2::TypeMeta dtype_;
  const c10::Device device_;
  const c10::DispatchKeySet keys_;

  base::Mutex mutex_;
  std::shared_ptr<Contents> contents_ OVERDRIVE_GUARDED_BY(mutex_);
  std::shared_ptr<PackUnit> larger_ OVERDRIVE_GUARDED_BY(mutex_);
  bool shared_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  WeakStorage fetched_ OVERDRIVE_GUARDED_BY(mutex_){c10::intrusive_ptr<c10::StorageImpl>()};
  int64_t fetched_offset_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::hooks
