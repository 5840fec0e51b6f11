// The tensors from outside that a region's function writes to: running statistics, counters. The first run
// notes their storages, later runs put values and versions back. Owned by the Region; written by the thread of
// the first run, unchanged afterwards. Any number of threads may run the region again at the same time. Leaves
// out writes that record a gradient, writes in a backward inside the function, and writes on other threads.
#pragma once

#include "checkpoint/region/write_observer.h"
#include "engine/base/torch_types.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace overdrive::checkpoint {

// Note [Writes to tensors from outside]
// Problem: a function that runs twice counts twice. Batch norm would put each batch into its running statistics
// in the first run and in the recomputation, and eval() would give other numbers than the plain model.
//
// Rule: a recomputation writes as the first run did, and at its end every storage that it wrote to and that the
// first run wrote to, too, has the bytes and the version that it had before. A storage that both runs write to
// is not made by the function: each run makes its own. So a version error in another node is as unlikely as
// without the region. A node of the recomputation that has saved such a tensor still needs the value of that
// run: the form on demand hands it a copy, a Tape puts value and version there once more for the time of its
// backward (OuterValues).
//
// Where several recomputations write to one storage at the same time, the last one to go restores the bytes
// that the first one to come has met. Nobody waits for the function of another region, which could be a
// deadlock.
//
// Rejected: writing to a copy instead. A function that reads the memory by its address, or replays a CUDA graph
// on it, would compute from old values, and no check would notice. Rejected: restoring at the end of the
// backward. Other nodes run until then.

// The versions of tensors that share a storage, in the order in which they were noted.
using Versions = std::vector<std::pair<c10::VariableVersion, uint32_t>>;

// The value of a tensor from outside at some moment.
struct OuterValue {
  c10::Storage storage;
  at::Tensor bytes;
  Versions versions;
};
using OuterValues = std::vector<OuterValue>;

// Puts values there that a recomputation wrote, for the length of a scope: a backward through the
// recomputation.
class OuterValuesScope {
 public:
  explicit OuterValuesScope(const OuterValues& values);
  ~OuterValuesScope();
  OuterValuesScope(const OuterValuesScope&) = delete;
  OuterValuesScope& operator=(const OuterValuesScope&) = delete;

 private:
  OuterValuesScope() = default;  // so that the destructor runs after an error

  OuterValues before_;
};

class OuterWrites {
 public:
  class Noting;
  class Undoing;

  bool empty() const { return storages_.empty(); }
  bool have(const c10::StorageImpl* storage) const;
  // Whether there are others than those of the tensors.
  bool are_beyond(const std::vector<at::Tensor>& tensors) const;

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::vector<WeakStorage> storages_;  // alive after the first run
};

// The first run.
class OuterWrites::Noting final : public WriteObserver {
 public:
  explicit Noting(OuterWrites& writes) : writes_(writes) {}
  ~Noting() { forget_dead(); }
  void will_write(const at::Tensor& tensor) override;

 private:
  void forget_dead();

  OuterWrites& writes_;
  size_t look_for_dead_at_ = 64;
};

// A later run: at the end everything is as before.
class OuterWrites::Undoing final : public WriteObserver {
 public:
  explicit Undoing(const OuterWrites& writes) : writes_(writes) {}
  ~Undoing();
  void will_write(const at::Tensor& tensor) override;

  // The values that are there now and will go, of tensors that have another version than before.
  OuterValues values() const;
  bool has_touched(const c10::StorageImpl* storage) const;

 private:
  const OuterWrites& writes_;
  OuterValues before_;
};

// The tensor, or a copy where a recomputation under way on this thread will restore its memory.
at::Tensor apart_from_outer_writes(const at::Tensor& tensor);

}  // namespace overdrive::checkpoint
