// One open derivative direction of forward mode: an index and the tangents registered with it. Owned by the
// registry from get_next_idx() to release_idx(); others hold it for the length of a call. Any thread may
// register or erase; the thread that opened a level releases it. Leaves LibTorch's layer stack to the
// LevelLayer that it is given.
#pragma once

#include "engine/base/export.h"
#include "engine/base/mutex.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>

namespace overdrive::forward_ad {

// Note [Lifetime of a level]
// A level is *open* from get_next_idx() until release_idx() takes it out of the registry. Then it is
// *released*: insert() refuses, and every tangent that it knows is dropped. Its memory goes with the last call
// that holds it.
//
// A level and a ForwardGrad each have one lock. Neither calls the other, nor destroys a tangent, under its
// lock, so there is no lock order to keep. The order of two steps makes that safe: set_value() stores the
// tangent first and registers second. Either a release on another thread finds the grad in the level and drops
// the tangent, or insert() refuses and set_value() takes the tangent back. The other order could store a
// tangent into a released level. release() sweeps a swapped-out set, so a grad that clears itself meanwhile
// finds nothing to erase, and a tangent's destructor may call back in.
//
// Rejected: weak references in the level. They pile up as tensors die before their level, and sweeping them
// costs as much as erase(), at a worse moment.

// The part of a level that must be undone on the thread that opened it: its layer on the layer stack.
class OVERDRIVE_API LevelLayer {
 public:
  virtual ~LevelLayer();
  // Throws when the layer cannot go now, and says why.
  virtual void check_can_leave() const = 0;
  virtual void leave() noexcept = 0;
  // The next leave() goes ahead even when others are inside, and takes the layers above along.
  virtual void force() noexcept {}
};

// The tangents of one tensor, as a level sees them: a ForwardGrad.
class OVERDRIVE_API TangentStore {
 public:
  virtual ~TangentStore();
  // The level is released: takes its tangent away, if there still is one.
  virtual void drop(uint64_t level) = 0;
};

class OVERDRIVE_API ForwardADLevel {  // A level, from its opening to its release.
 public:
  explicit ForwardADLevel(uint64_t idx);
  ~ForwardADLevel();
  ForwardADLevel(const ForwardADLevel&) = delete;
  ForwardADLevel& operator=(const ForwardADLevel&) = delete;

  uint64_t idx() const { return idx_; }  // The index in the registry.

  // False when the level has been released: nothing was registered.
  bool insert(const std::shared_ptr<TangentStore>& grad) OVERDRIVE_EXCLUDES(mutex_);
  void erase(const std::shared_ptr<TangentStore>& grad) OVERDRIVE_EXCLUDES(mutex_);
  size_t grad_count() const OVERDRIVE_EXCLUDES(mutex_);

  // Refuses new grads and drops the tangents of the known ones. Called by the registry.
  void release() OVERDRIVE_EXCLUDES(mutex_);

  // Set once by the opener; other threads may look for it at the same time.
  void attach(std::unique_ptr<LevelLayer> layer);
  LevelLayer* layer() const { return layer_.load(std::memory_order_acquire); }

 private:
  const uint64_t idx_;
  std::unique_ptr<LevelLayer> owned_layer_;  // written by attach() alone, read by nobody
  std::atomic<LevelLayer*> layer_{nullptr};
  mutable base::Mutex mutex_;
  bool released_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  std::unordered_set<std::shared_ptr<TangentStore>> grads_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::forward_ad
