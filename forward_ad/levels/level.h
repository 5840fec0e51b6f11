// One open derivative direction of forward mode: an index and the tangents registered
// with it. Owned by the registry from get_next_idx() to release_idx(); others hold it
// for the length of a call. Any thread may register or erase; the thread that opened a
// level releases it. Leaves the layer stack of LibTorch to the LevelLayer it is given.
#pragma once

#include "engine/base/export.h"
#include "engine/base/mutex.h"
#include "forward_ad/levels/forward_grad.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>

namespace overdrive::forward_ad {

// Note [Lifetime of a level]
// A level is *open* from get_next_idx() until release_idx() takes it out of the
// registry; then it is *released*: insert() refuses, and every tangent it knows is
// dropped. Its memory goes with the last call that holds it.
//
// A level and a ForwardGrad each have one lock, and neither calls the other, nor
// destroys a tangent, while it holds its own: so there is no lock order to keep. What
// makes that safe is the order of two steps. set_value() stores the tangent first and
// registers second: either the release that runs beside it finds the grad in the level
// and drops the tangent, or insert() is refused and set_value() takes it back. The
// other order could store a tangent into a level that has already swept. release()
// sweeps a swapped-out set, so a grad that is clearing itself meanwhile finds nothing
// to erase, and a tangent's destructor may call back in.
//
// Rejected: weak references in the level. They would pile up as tensors die before
// their level, and sweeping them costs what erase() costs, at a worse moment.

// What a level must undo on the thread that opened it: its layer on the layer stack.
class OVERDRIVE_API LevelLayer {
 public:
  virtual ~LevelLayer();
  // Throws when the layer cannot go now, and says why.
  virtual void check_can_leave() const = 0;
  virtual void leave() noexcept = 0;
  // The next leave() goes ahead whoever is inside, and takes layers above along.
  virtual void force() noexcept {}
};

class OVERDRIVE_API ForwardADLevel {
 public:
  explicit ForwardADLevel(uint64_t idx);
  ~ForwardADLevel();
  ForwardADLevel(const ForwardADLevel&) = delete;
  ForwardADLevel& operator=(const ForwardADLevel&) = delete;

  // The process-wide registry; see LevelRegistry.
  static uint64_t get_next_idx();
  static void release_idx(uint64_t idx);
  static std::shared_ptr<ForwardADLevel> get_by_idx(uint64_t idx);
  static std::shared_ptr<ForwardADLevel> try_get_by_idx(uint64_t idx);

  uint64_t idx() const { return idx_; }

  // False when the level has been released: nothing was registered.
  bool insert(const std::shared_ptr<ForwardGrad>& grad) OVERDRIVE_EXCLUDES(mutex_);
  void erase(const std::shared_ptr<ForwardGrad>& grad) OVERDRIVE_EXCLUDES(mutex_);
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
  std::unordered_set<std::shared_ptr<ForwardGrad>> grads_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::forward_ad
