// A piece of memory that was given to a hook once, on behalf of one saved tensor or of several that share
// it; under a schedule, one that waits to be given to it, or is fetched before it is asked for. Owned by the
// saved tensors. Several nodes on several threads may fetch at once. Knows nothing of parameters; whoever
// saves decides what a unit is, `pending` when one that waits is packed, `look_ahead` what is fetched early.
#pragma once

#include "engine/base/mutex.h"
#include "engine/base/stream_mark.h"
#include "hooks/geometry.h"
#include "hooks/prefetch.h"
#include "hooks/saved_tensor_hooks.h"

#include <memory>
#include <optional>

namespace overdrive::hooks {

class PackUnit {
 public:
  struct Timing {
    bool pack_later = false;   // keeps the tensor until pack_waiting()
    bool fetch_early = false;  // announce_fetch() and fetch_ahead() may be called
  };
  // Gives `source` to the hook: a tensor without history, conjugation or negation. Throws what pack() throws,
  // and when pack() changed its input.
  PackUnit(HooksPtr hooks, const at::Tensor& source, const SaveInfo& info, Timing timing);

  const Geometry& geometry() const { return geometry_; }
  const SaveInfo& info() const { return info_; }
  caffe2::TypeMeta dtype() const { return dtype_; }
  int64_t bytes() const { return geometry_.numel() * static_cast<int64_t>(dtype_.itemsize()); }

  // Whether a tensor of this geometry can be cut out of what fetch() gives.
  bool contains(const Geometry& other) const;
  bool overlaps(const Geometry& other) const;
  bool holds_exactly(const Geometry& other) const;
  // An empty tensor of the packed one's type, for messages.
  at::Tensor looks() const;

  // The memory as it was, cut to the geometry of a saved tensor and with its version counter.
  at::Tensor fetch(const Geometry& wanted, const c10::VariableVersion& counter, base::Node* node)
      OVERDRIVE_EXCLUDES(mutex_);

  // From now on there are several owners: what is fetched for one is given to the others for as long as it
  // is alive.
  void share() OVERDRIVE_EXCLUDES(mutex_);
  // A larger unit has packed this one's memory too. What was packed here goes.
  void replace_by(std::shared_ptr<PackUnit> larger) OVERDRIVE_EXCLUDES(mutex_);

  // Gives a tensor that waits to the hook; one that was changed meanwhile is let go. After an error of
  // pack(), which is thrown, it stays as it is for good.
  void pack_waiting() OVERDRIVE_EXCLUDES(mutex_);
  // Whether the tensor was changed in place before it was packed, so that nobody has what was saved.
  bool is_lost() OVERDRIVE_EXCLUDES(mutex_);

  // Whether to have it fetched ahead: fetch_ahead() is then to be called soon, on any thread. Both are those
  // of the unit that took this one's place, if one did.
  bool announce_fetch() OVERDRIVE_EXCLUDES(mutex_);
  void fetch_ahead() OVERDRIVE_EXCLUDES(mutex_);
  void forget_fetched() OVERDRIVE_EXCLUDES(mutex_);

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Contents;

  at::Tensor whole(const c10::VariableVersion& counter, base::Node* node, bool& is_new)
      OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor unpack(Contents& contents, base::Node* node);
  Prefetch::Fetched unpack_ahead() OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor take_fetched();
  std::optional<c10::Device> device_of_accelerator() const {
    return device_.is_cpu() ? std::nullopt : std::optional(device_);
  }
  at::Tensor cut(at::Tensor whole, const Geometry& wanted, const c10::VariableVersion& counter) const;
  void remember(const at::Tensor& fetched) OVERDRIVE_EXCLUDES(mutex_);
  // What was fetched before, if somebody still has it.
  at::Tensor still_alive(const c10::VariableVersion& counter) OVERDRIVE_REQUIRES(mutex_);
  std::shared_ptr<PackUnit> larger() OVERDRIVE_EXCLUDES(mutex_);

  // Fixed from the beginning.
  const HooksPtr hooks_;
  const Geometry geometry_;
  const SaveInfo info_;
  const caffe2::TypeMeta dtype_;
  const c10::Device device_;
  const c10::DispatchKeySet keys_;
  const uint32_t version_;
  const WeakStorage source_;  // of the tensor that was saved: to compare with, so its address stays taken
  const std::unique_ptr<Prefetch> prefetch_;
  const base::StreamMark saved_;  // of a unit with a schedule: its tensor is made

  base::Mutex mutex_;
  // One of three, or none when the unit is lost.
  at::Tensor waiting_ OVERDRIVE_GUARDED_BY(mutex_);
  std::shared_ptr<Contents> contents_ OVERDRIVE_GUARDED_BY(mutex_);
  std::shared_ptr<PackUnit> larger_ OVERDRIVE_GUARDED_BY(mutex_);
  bool shared_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  WeakStorage fetched_ OVERDRIVE_GUARDED_BY(mutex_){c10::intrusive_ptr<c10::StorageImpl>()};
  int64_t fetched_offset_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::hooks
