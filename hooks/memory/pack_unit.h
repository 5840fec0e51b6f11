// Memory that was given to a hook once, on behalf of several saved tensors that share it; under a schedule,
// memory that waits to be given to it, or is fetched before it is asked for. Owned by the saved tensors.
// Several nodes on several threads may fetch at once. Knows nothing of parameters; whoever saves decides what a
// unit is, `pending` when one that waits is packed, `look_ahead` what is fetched early.
#pragma once

#include "engine/base/ahead_result.h"
#include "engine/base/mutex.h"
#include "engine/base/stream_mark.h"
#include "hooks/memory/saved_memory.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace overdrive::hooks {

// Memory that was unpacked before its node asked.
struct Fetched {
  at::Tensor tensor;
  base::StreamMark ready;  // on the fetching thread's stream

  explicit operator bool() const { return tensor.defined(); }
};
using Prefetch = base::AheadResult<Fetched>;

class PackUnit {
 public:
  struct Timing {
    bool pack_later = false;   // keeps the tensor until pack_waiting()
    bool fetch_early = false;  // announce_fetch() and fetch_ahead() may be called
    bool may_share = true;     // share() and replace_by() may be called
    // Neither: such a tensor needs no unit, only SavedMemory.
    bool is_plain() const { return !pack_later && !fetch_early && !may_share; }
  };
  // Of `source`, see SavedMemory. Gives it to the hook, unless that is for later. Inside a hook (InsideHook)
  // and without grad mode. Throws what pack() throws.
  PackUnit(HooksPtr hooks, at::Tensor source, const Geometry& geometry, VersionCheck version,
           const SaveInfo& info, Timing timing);
  ~PackUnit();
  PackUnit(const PackUnit&) = delete;
  PackUnit& operator=(const PackUnit&) = delete;

  const SavedMemory& memory() const { return memory_; }

  // The memory as it was, with its version counter: cut to a part, or all of it.
  at::Tensor fetch(const Geometry* part, base::Node* node) OVERDRIVE_EXCLUDES(mutex_);

  // From now on there are several owners: what is fetched for one is given to the others for as long as it
  // is alive.
  void share() OVERDRIVE_EXCLUDES(mutex_);
  // A larger unit has packed this one's memory too. What was packed here goes.
  void replace_by(std::shared_ptr<PackUnit> larger) OVERDRIVE_EXCLUDES(mutex_);

  // The name of the node that saved it has become known: for a pack that comes late.
  void note_node_name(std::string name) OVERDRIVE_EXCLUDES(mutex_);
  // Gives a tensor that waits to the hook; one that was changed meanwhile is let go. After an error of
  // pack(), which is thrown, it stays as it is for good.
  void pack_waiting() OVERDRIVE_EXCLUDES(mutex_);
  // Whether the tensor was changed in place before it was packed, so that nobody has what was saved.
  bool is_lost() OVERDRIVE_EXCLUDES(mutex_);

  // A node will ask: whether fetch_ahead() is to be called soon, on any thread, for that node. All are those of
  // the unit that took this one's place, if one did.
  Prefetch::Announced announce_fetch() OVERDRIVE_EXCLUDES(mutex_);
  // The node has asked by now, or never will.
  void passed_fetch() OVERDRIVE_EXCLUDES(mutex_);
  // Tells the hook what will be fetched, unless that has begun.
  void expect_unpack() OVERDRIVE_EXCLUDES(mutex_);
  // Without a node it is called off. Does not hold the node when the node gets its tensor.
  void fetch_ahead(base::NodePtr node) OVERDRIVE_EXCLUDES(mutex_);
  void forget_fetched() OVERDRIVE_EXCLUDES(mutex_);

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  class Reading;

  at::Tensor unpack(base::Node* node);
  void drop_packed() OVERDRIVE_EXCLUDES(mutex_);
  std::pair<Packed, base::StreamMark> pack_late(const at::Tensor& source, const std::string& node_name) const;
  Fetched unpack_ahead(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor take_fetched();
  at::Tensor unpack_now(base::Node* node);
  // Ends the waiting, of which others are told. The tensor, if one waited, is for the caller to let go.
  at::Tensor stop_waiting() OVERDRIVE_REQUIRES(mutex_);
  void remember(const at::Tensor& fetched) OVERDRIVE_EXCLUDES(mutex_);
  // What was fetched before, if somebody still has it; good after `fetched_ready_`.
  at::Tensor still_alive() OVERDRIVE_REQUIRES(mutex_);
  std::shared_ptr<PackUnit> larger() OVERDRIVE_EXCLUDES(mutex_);

  // Fixed from the beginning.
  const SavedMemory memory_;
  const c10::DispatchKeySet keys_;
  const WeakStorage source_;  // of one that may be shared: the saved tensor's, so that its address stays taken
  const std::unique_ptr<Prefetch> prefetch_;
  const base::StreamMark saved_;  // of a unit with a schedule: its tensor is made

  base::Mutex mutex_;
  // One of three, or none when the unit is lost: a tensor that waits (and counts as such), what pack() made of
  // it, a larger unit.
  at::Tensor waiting_ OVERDRIVE_GUARDED_BY(mutex_);
  std::string node_name_ OVERDRIVE_GUARDED_BY(mutex_);  // while it waits
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
  base::StreamMark fetched_ready_ OVERDRIVE_GUARDED_BY(mutex_);
};

// While one lives, what is packed stays, even when a larger unit takes its place.
class PackUnit::Reading {
 public:
  explicit Reading(PackUnit& unit) : unit_(unit) { ++unit_.readers_; }
  ~Reading() {
    if (unit_.readers_.fetch_sub(1) == 1 && unit_.is_replaced_) unit_.drop_packed();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  PackUnit& unit_;
};

}  // namespace overdrive::hooks
