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
#include "hooks/version_check.h"

#include <atomic>
#include <memory>
#include <optional>

namespace overdrive::hooks {

class PackUnit {
 public:
  struct Timing {
    bool pack_later = false;   // keeps the tensor until pack_waiting()
    bool fetch_early = false;  // announce_fetch() and fetch_ahead() may be called
    bool may_share = true;     // share() and replace_by() may be called
  };
  // Gives `source` to the hook: a tensor without history, conjugation or negation, of this geometry and at this
  // version. Inside a hook (InsideHook) and without grad mode. Throws what pack() throws, and when pack()
  // changed its input.
  PackUnit(HooksPtr hooks, at::Tensor source, const Geometry& geometry, VersionCheck version,
           const SaveInfo& info, Timing timing);
  ~PackUnit();
  PackUnit(const PackUnit&) = delete;
  PackUnit& operator=(const PackUnit&) = delete;

  const Geometry& geometry() const { return geometry_; }
  const SaveInfo& info() const { return info_; }
  // Of the memory; all tensors that share the unit were saved at it.
  const VersionCheck& version() const { return version_; }
  caffe2::TypeMeta dtype() const { return dtype_; }
  int64_t bytes() const { return geometry_.numel() * static_cast<int64_t>(dtype_.itemsize()); }

  // Whether a tensor of this geometry can be cut out of what fetch() gives.
  bool contains(const Geometry& other) const;
  bool overlaps(const Geometry& other) const;
  bool holds_exactly(const Geometry& other) const;
  // An empty tensor of the packed one's type, for messages.
  at::Tensor looks() const;

  // The memory as it was, with its version counter: cut to a part, or all of it.
  at::Tensor fetch(const Geometry* part, base::Node* node) OVERDRIVE_EXCLUDES(mutex_);

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
  class Reading;

  at::Tensor unpack(base::Node* node);
  void drop_packed() OVERDRIVE_EXCLUDES(mutex_);
  Prefetch::Fetched unpack_ahead() OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor take_fetched();
  std::optional<c10::Device> device_of_accelerator() const {
    return device_.is_cpu() ? std::nullopt : std::optional(device_);
  }
  at::Tensor cut(at::Tensor whole, const Geometry* part) const;
  // The tensor that waits, if one does, is for the caller to let go.
  at::Tensor stop_waiting() OVERDRIVE_REQUIRES(mutex_);
  void remember(const at::Tensor& fetched) OVERDRIVE_EXCLUDES(mutex_);
  // What was fetched before, if somebody still has it.
  at::Tensor still_alive() OVERDRIVE_REQUIRES(mutex_);
  std::shared_ptr<PackUnit> larger() OVERDRIVE_EXCLUDES(mutex_);

  // Fixed from the beginning.
  const HooksPtr hooks_;
  const Geometry geometry_;
  const SaveInfo info_;
  const caffe2::TypeMeta dtype_;
  const c10::Device device_;
  const c10::DispatchKeySet keys_;
  const VersionCheck version_;
  const bool alone_;          // there is nothing to lock: packed when made, and always as it is
  const WeakStorage source_;  // of one that may be shared: the saved tensor's, so that its address stays taken
  const std::unique_ptr<Prefetch> prefetch_;
  const base::StreamMark saved_;  // of a unit with a schedule: its tensor is made

  base::Mutex mutex_;
  // One of three, or none when the unit is lost: a tensor that waits (and counts as such), what pack() made of
  // it, a larger unit.
  at::Tensor waiting_ OVERDRIVE_GUARDED_BY(mutex_);
  bool is_packed_ OVERDRIVE_GUARDED_BY(mutex_);
  std::shared_ptr<PackUnit> larger_ OVERDRIVE_GUARDED_BY(mutex_);
  // Packed, and of one owner: then nothing of the above needs to be looked at.
  std::atomic<bool> is_simple_;
  // How many unpack now. When a larger unit comes meanwhile, the last of them drops what was packed.
  std::atomic<int> readers_{0};
  std::atomic<bool> is_replaced_{false};
  // Written before is_packed_ is set and when nobody reads.
  Packed packed_;
  base::StreamMark made_;  // under a schedule: whoever unpacks may do so on another stream
  bool shared_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  WeakStorage fetched_ OVERDRIVE_GUARDED_BY(mutex_){c10::intrusive_ptr<c10::StorageImpl>()};
  int64_t fetched_offset_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::hooks
