// Memory that was given to a hook once, on behalf of the saved tensors that share it. Under a schedule the
// memory waits before it is packed, or is unpacked before a node asks for it. Owned by the saved tensors.
// Several nodes on several threads may fetch at once. Leaves to `hooked_save` what a unit holds, to `pending`
// when it is packed, and to `fetch_ahead` what is unpacked early. pack_unit_ahead.cpp has the second half of
// the functions.
#pragma once

#include "engine/base/ahead_result.h"
#include "engine/base/mutex.h"
#include "engine/base/stream_mark.h"
#include "hooks/memory/saved_memory.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace overdrive::hooks {

// Memory that was unpacked before its node asked.
struct Fetched {
  at::Tensor tensor;
  base::StreamMark ready;  // on the fetching thread's stream
  uint64_t link = 0;       // of the fetch, where it was told (AuxiliarySpan)

  explicit operator bool() const { return tensor.defined(); }
};
using Prefetch = base::AheadResult<Fetched>;

class PackUnit {
 public:
  struct Timing {
    bool pack_later = false;   // keeps the tensor until pack_waiting()
    bool fetch_early = false;  // announce_fetch() and fetch_ahead() may be called
    bool may_share = true;     // share() may be called
    // A tensor with none of them needs no unit, only SavedMemory.
    bool is_plain() const { return !pack_later && !fetch_early && !may_share; }
  };
  // Of `source`, see SavedMemory. Gives it to the hook, unless it is to be packed later. Inside a hook
  // (InsideHook) and without grad mode. Throws what pack() throws.
  PackUnit(HooksPtr hooks, at::Tensor source, const Geometry& geometry, engine::host::VersionCheck version,
           const SaveInfo& info, Timing timing);
  ~PackUnit();
  PackUnit(const PackUnit&) = delete;
  PackUnit& operator=(const PackUnit&) = delete;

  const SavedMemory& memory() const { return memory_; }

  // The memory as it was, with its version counter: cut to a part, or all of it.
  at::Tensor fetch(const Geometry* part, base::Node* node) OVERDRIVE_EXCLUDES(mutex_);

  // From now on there are several owners: a tensor that was fetched for one is given to the others while it
  // lives.
  void share() OVERDRIVE_EXCLUDES(mutex_);

  // Gives a waiting tensor to the hook; lets it go if it was changed meanwhile. An error of pack() is thrown,
  // and the tensor then stays as it is for good.
  void pack_waiting() OVERDRIVE_EXCLUDES(mutex_);
  // Whether the tensor was changed in place before it was packed, so that nobody has what was saved.
  bool is_lost() OVERDRIVE_EXCLUDES(mutex_);

  // A node will ask. Says whether fetch_ahead() is to be called soon, on any thread, for that node.
  Prefetch::Announced announce_fetch() OVERDRIVE_EXCLUDES(mutex_);
  // The node has asked by now, or never will.
  void passed_fetch() OVERDRIVE_EXCLUDES(mutex_);
  // Tells the hook of the coming fetch, unless that has begun.
  void expect_unpack() OVERDRIVE_EXCLUDES(mutex_);
  // Called off without a node. Does not hold the node when the node gets its tensor.
  void fetch_ahead(base::NodePtr node) OVERDRIVE_EXCLUDES(mutex_);
  void forget_fetched() OVERDRIVE_EXCLUDES(mutex_);

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  at::Tensor unpack(base::Node* node) OVERDRIVE_EXCLUDES(mutex_);
  std::pair<Packed, base::StreamMark> pack_late(const at::Tensor& source) const;
  Fetched unpack_ahead(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor take_fetched();
  at::Tensor unpack_now(base::Node* node);
  // Ends the waiting and its count. The caller lets the tensor go, if one waited.
  at::Tensor stop_waiting() OVERDRIVE_REQUIRES(mutex_);
  void remember(const at::Tensor& fetched) OVERDRIVE_EXCLUDES(mutex_);
  // The tensor that was fetched before, if somebody still has it; good after `fetched_ready_`.
  at::Tensor still_alive() OVERDRIVE_REQUIRES(mutex_);

  // Fixed from the beginning.
  const SavedMemory memory_;
  const c10::DispatchKeySet keys_;
  const WeakStorage
      source_;  // of a unit that may be shared: the saved tensor's, so that its address stays taken
  const std::unique_ptr<Prefetch> prefetch_;
  const base::StreamMark saved_;  // of a unit with a schedule: its tensor is made
  const std::string node_name_;   // for a late pack, if known

  base::Mutex mutex_;
  // Of a unit that is packed later; it counts as waiting.
  at::Tensor waiting_ OVERDRIVE_GUARDED_BY(mutex_);
  // Neither packed nor waiting: the unit is lost.
  bool is_packed_ OVERDRIVE_GUARDED_BY(mutex_);
  // Packed, and of one owner: nothing under the lock needs to be read.
  std::atomic<bool> is_simple_;
  // Written before is_packed_ is set, while nobody reads.
  Packed packed_;
  // The stream of a pack without a mark. A mark costs an event, and one owner unpacks where it packed.
  const std::optional<c10::Stream> packed_on_;
  // Under a schedule, or with several owners: an unpack may run on another stream than the pack.
  base::StreamMark made_ OVERDRIVE_GUARDED_BY(mutex_);
  bool shared_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  WeakStorage fetched_ OVERDRIVE_GUARDED_BY(mutex_){c10::intrusive_ptr<c10::StorageImpl>()};
  int64_t fetched_offset_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  base::StreamMark fetched_ready_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::hooks
