// The tensors that one region saved and dropped: their signatures, and the way to get them back. Shared by the
// tensors that the region's nodes saved, and freed with the last of these. The first run drops on one thread;
// nodes fetch on any, several at once. Leaves out which tensors are saved by hooks.
#pragma once

#include "checkpoint/region/region.h"
#include "checkpoint/region/saved_inputs.h"
#include "engine/base/mutex.h"
#include "hooks/hooks.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace overdrive::checkpoint {

// Note [Recomputing without a lock]
// No lock is held while a region runs again. Its function may run a backward of its own, and a thread that
// takes part in that backward may want a tensor of the same region at this moment. Two threads that find no
// tensor both run the region. Each takes its tensor from its own run, and the first to finish leaves the other
// tensors here.
class DroppedTensors : public std::enable_shared_from_this<DroppedTensors> {
 public:
  // One tensor. With its last owner goes the tensor that was recomputed for it.
  class Handle;

  // Both runs must find the same tensors in the same order. So memory that is saved twice is dropped twice,
  // whatever is still alive, and parameters take their turn too: a view of one that comes out of another
  // region's hooks is no view any more.
  static constexpr hooks::HookOptions kOfARegion{
      .skip_parameters = false, .share = false, .check_in_place = true};

  DroppedTensors(Function function, const Tensors& inputs, const Options& options);

  // The first run, inside a scope of hooks that call drop().
  Tensors run(const Tensors& inputs);
  // Whether the first run is under way. Its scope of hooks may still be met later, in modes that were copied in
  // it.
  bool is_open() const OVERDRIVE_EXCLUDES(mutex_);

  // Notes a tensor. Tensors of other threads come in an order that may be another in the second run; the first
  // run then ends with an error.
  std::shared_ptr<Handle> drop(const at::Tensor& tensor) OVERDRIVE_EXCLUDES(mutex_);
  // Notes a tensor that is not dropped: the second run will meet it too.
  void pass(const at::Tensor& tensor) OVERDRIVE_EXCLUDES(mutex_);

  const Options& options() const { return region_.options(); }

  std::string name() const { return region_.name(); }

 private:
  class Capture;
  struct Dropped {
    TensorSignature signature;
    bool dropped;           // else it was passed, and is here for its turn only
    bool wanted;            // its handle is there
    at::Tensor recomputed;  // by the last run, and not yet handed out
  };
  struct Expected {
    TensorSignature signature;
    bool dropped;
  };

  size_t note(const at::Tensor& tensor, bool dropped) OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor fetch(size_t index) OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor take(size_t index) OVERDRIVE_EXCLUDES(mutex_);
  void forget(size_t index) OVERDRIVE_EXCLUDES(mutex_);
  Tensors recompute() const OVERDRIVE_EXCLUDES(mutex_);
  std::vector<Expected> expected() const OVERDRIVE_EXCLUDES(mutex_);

  // Unchanged after the first run.
  Region region_;
  SavedInputs inputs_;

  mutable base::Mutex mutex_;
  bool open_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  std::thread::id runner_ OVERDRIVE_GUARDED_BY(mutex_);  // of the first run
  bool others_saved_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  std::vector<Dropped> tensors_ OVERDRIVE_GUARDED_BY(mutex_);
  uint64_t runs_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // that left their tensors here
};

class DroppedTensors::Handle {
 public:
  Handle(std::shared_ptr<DroppedTensors> all, size_t index) : all_(std::move(all)), index_(index) {}
  ~Handle() { all_->forget(index_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // The tensor as the region makes it again.
  at::Tensor fetch() const { return all_->fetch(index_); }

 private:
  const std::shared_ptr<DroppedTensors> all_;
  const size_t index_;
};

}  // namespace overdrive::checkpoint
